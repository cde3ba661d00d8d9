"""Distributed TensorFlow training programs, one mode each: `python -m trainer MODE`.

The package runs alone on any host that has Python and TensorFlow. Nothing here imports
TensorFlow until the flags have been read and found right.
"""
