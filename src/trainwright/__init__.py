"""Trainwright: how to train this model on that cluster."""

__version__ = "0.1.0"
