"""Cluster files: what they say, what is wrong in them, and texts that become one.

`tfmux --help` and the first frame import `choices` alone: the modules around `file_model` take
longer.
"""
