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
    "PartitionConfig": (
        "the partition's limits do not allow it: write a shorter time, fewer nodes, or other gpus "
        "or options (scontrol show partition lists the limits)"
    ),
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
_SENTENCES = tuple(
    (re.compile(pattern, re.IGNORECASE), todo)
    for pattern, todo in (
        (
            r"account not (known|permitted)",
            "write an account that the partition allows (--account in options), or another "
            "partition",
        ),
        (
            r"qos not (known|permitted)",
            "write a QOS that the partition allows (--qos in options), or another partition",
        ),
    )
)
"""The same, of reasons that are no words of Slurm's list."""

NO_COMMANDS = (
    "start tfmux on a machine that has Slurm's commands, or write such a machine into [slurm]: "
    'login = "user@host"'
)
NO_COMMANDS_THERE = (
    "login in [slurm] must be a machine that has Slurm's commands, in the PATH of a shell without "
    "a terminal"
)
NO_FOLDER = (
    "an agent cannot make its folder on a node: /tmp there, and the folder that XDG_STATE_HOME "
    "names (~/.local/state), must be writable and not full"
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


def advice_on_reason(reason: str) -> str:
    """Advice on a job that waits for this reason; empty if the reason may go away by itself."""
    if todo := HOPELESS.get(reason.partition(",")[0].strip("()")):
        return todo
    return next((todo for pattern, todo in _SENTENCES if pattern.search(reason)), "")


def advice_on(refusal: str) -> str:
    """Advice on a request that sbatch has refused with these words; empty if unknown."""
    return next((todo for pattern, todo in _REFUSALS if pattern.search(refusal)), "")
