"""Advice on what Slurm says: reasons of jobs that wait for ever, and refusals of `sbatch`.

It is only shown; nothing is decided by it.
"""

from __future__ import annotations

import re

HOPELESS = {
    "PartitionNodeLimit": "the partition has fewer nodes, or allows fewer: write a smaller nodes",
    "PartitionTimeLimit": "the partition's time limit is shorter: write a shorter time",
    "PartitionDown": "the partition is down: write another partition",
    "PartitionInactive": "the partition is inactive: write another partition",
    "PartitionConfig": "no such nodes are in the partition: write other nodes, gpus or options",
    "BadConstraints": "no node meets the constraints: correct --constraint, gpus or nodes",
    "AccountNotAllowed": "the account may not use the partition: write another --account",
    "InvalidAccount": "there is no such account: correct --account",
    "InvalidQOS": "there is no such QOS: correct --qos",
    "QOSNotAllowed": "the QOS is not allowed in the partition: write another --qos",
    "DependencyNeverSatisfied": "its dependency can never be met: remove --dependency",
    "JobHeldUser": "it is held: scontrol release lets it start",
    "JobHeldAdmin": "it is held by an administrator: ask them",
    "AssocMaxNodePerJobLimit": "the account allows fewer nodes a job: write a smaller nodes",
    "AssocMaxWallDurationPerJobLimit": "the account's time limit is shorter: write a shorter time",
    "QOSMaxNodePerJobLimit": "the QOS allows fewer nodes a job: write a smaller nodes",
    "QOSMaxWallDurationPerJobLimit": "the QOS's time limit is shorter: write a shorter time",
    "QOSMaxGRESPerJob": "the QOS allows fewer GPUs a job: write a smaller gpus",
}
"""Reasons of pending jobs that do not go away by waiting, and what to change."""

NO_COMMANDS = (
    "start tfmux on a machine that has Slurm's commands, or write such a machine into [slurm]: "
    'login = "user@host"'
)
NO_COMMANDS_THERE = (
    "login in [slurm] must be a machine that has Slurm's commands, in the PATH of a shell without "
    "a terminal"
)
NO_PYTHON = (
    "the interpreter was not found on a node: write where a Python 3.8 or newer is there: "
    "python in [slurm]"
)
_REFUSALS = tuple(
    (re.compile(pattern, re.IGNORECASE), todo)
    for pattern, todo in (
        ("invalid partition", "correct partition in [slurm] (sinfo -s lists them)"),
        ("invalid qos", "correct --qos in options"),
        ("invalid account", "correct --account in options of [slurm]"),
        ("time limit", "write a shorter time in [slurm]"),
        ("too many|node count|more processors", "write a smaller nodes, or another partition"),
        ("configuration is not available", "no node has that: correct nodes, gpus or options"),
        ("unrecogni[sz]ed option|invalid option", "correct options in [slurm]"),
        ("munge|authentication", "munge does not work there: ask who runs that machine"),
        (
            "denied|not permitted|invalid user",
            "this user may not submit that: write another partition or --account",
        ),
        ("unable to contact|socket timed out", "Slurm's controller does not answer: try later"),
    )
)


def advice_on(refusal: str) -> str:
    """What to change after sbatch has refused a request with these words; empty if unknown."""
    return next((todo for pattern, todo in _REFUSALS if pattern.search(refusal)), "")
