"""Tests of what faces a person at a terminal."""
