"""Runs under a training algorithm: workers that may come and go between rounds."""
