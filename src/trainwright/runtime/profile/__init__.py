"""Measuring the machine that processes run on."""
