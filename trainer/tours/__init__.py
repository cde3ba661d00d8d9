"""The tours: small programs that each show one thing about TensorFlow's distributed runtime.

`python -m trainer tour NAME` runs one task of a tour. Each prints what it does and what came of it.
"""
