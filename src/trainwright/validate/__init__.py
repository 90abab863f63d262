"""Predictions beside measurements: tables of real runs, and the fit of constants to them."""
