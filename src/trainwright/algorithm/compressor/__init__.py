"""Compressors: what a worker sends instead of a vector, each in a file of its own."""
