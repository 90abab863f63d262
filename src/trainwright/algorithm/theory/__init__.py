"""Exact results on quadratics, where subnetworks and compressed gradients part ways; without torch."""
