"""Measurements: each prints a table that compares within one run, on this machine."""
