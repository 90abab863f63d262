"""Carrying out a lowered program on PyTorch."""
