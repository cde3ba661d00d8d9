"""Attacks and unlucky moments against what is promised: each of them as a test."""
