"""Nodes of Slurm: the job of a run, its script, settings that matter, and where its commands run.

Agents, logs, order, kills and receipts are the same on these nodes as on SSH hosts.
"""
