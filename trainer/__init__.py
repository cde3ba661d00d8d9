"""Distributed TensorFlow training programs, one mode each: `python -m trainer MODE`.

The package runs alone on any host that has Python and TensorFlow.
"""
