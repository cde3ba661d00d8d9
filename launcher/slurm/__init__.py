"""Nodes of Slurm: the job of a run, its script, limits of the cluster, and where its commands run.

Agents, logs, order, kills and receipts are the same on these nodes as on SSH hosts.
"""
