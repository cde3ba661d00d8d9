"""Export of a cluster to another engine.

compose  containers with SSH and GPUs that stand for the hosts, and the cluster file to go
         with them: how to try a cluster on one machine
slurm    a batch script
"""
