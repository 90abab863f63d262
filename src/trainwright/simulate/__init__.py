"""Predicting when every task of a program runs."""
