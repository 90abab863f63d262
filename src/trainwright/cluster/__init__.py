"""Clusters: devices, the network that joins them, and how many there are."""
