"""Logs as a screen shows them: bytes on disk in, clean coloured text out.

Nothing here knows the terminal toolkit: a document is a view on a log file, a viewport is
arithmetic, and what a line looks like is plain data.
"""
