"""Faults planted in the program, one at a time in a copy of it, and the tests that find them."""
