"""Logs as a screen shows them: bytes of a file in, clean coloured text out.

Nothing here imports the terminal toolkit: a document reads lines of a file, a viewport is
arithmetic, and a drawn line is plain data.
"""
