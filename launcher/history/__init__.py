"""Runs as they are on disk and in the index, whether they live or not.

control             what front ends can do with any run
stored              a run read from its record
run_list            the runs of this machine
named_runs          finds those that a person names
following           reads the events and logs of a run while they come
again               launches a run once more
kept_results        what runs have left on hosts
deletion            removes runs
"""
