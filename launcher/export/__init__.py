"""Export of a cluster to another engine.

compose  a container with SSH and GPUs for each host, and a cluster file for these containers,
         to try a cluster on one machine
slurm    a batch script
"""
