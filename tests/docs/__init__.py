"""Tests of the manual: what it shows is run, and what it names exists."""
