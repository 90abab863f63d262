"""Configurations of other tools, read as plans."""
