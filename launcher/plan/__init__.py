"""Plan of a run: each task's exact command and environment, and the stages of the start.

A run's record needs only `facts`.
"""
