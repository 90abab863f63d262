"""Costs of operators and collectives: one set of functions over arrays."""
