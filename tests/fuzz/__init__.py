"""Mutated inputs for every reader: `make fuzz`."""
