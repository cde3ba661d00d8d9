"""Slurm's commands, answered by the test."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.hosts.frames import Rules
from launcher.slurm.job import SlurmJob
from launcher.slurm.login import Output
from tests.support.cluster_texts import cluster_on_slurm as cluster


def row(
    state: str, nodes: str = "", reason: str = "None", start: str = "N/A", job: str = "7"
) -> str:
    """A line of squeue about a job."""
    return f"{job}|{state}|{start}|{nodes}|{reason}\n"


RULES = Rules(lease=60.0, grace=5.0, on_disconnect="stop")


class Scripted:
    """Commands whose answers are given beforehand, by the command's name."""

    def __init__(self, **answers: Output | str) -> None:
        self._answers = answers
        self.asked: list[tuple[str, ...]] = []
        self.stdin = ""

    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
        self.asked.append(tuple(argv))
        self.stdin = stdin or self.stdin
        key = "hostnames" if "hostnames" in argv else "config" if "config" in argv else argv[0]
        key = "sbatch" if "sbatch" in argv else key
        key = "steps" if argv[:2] == ("squeue", "-s") else key
        answer = self._answers.get(key, Output(1, "", f"{argv[0]}: not scripted"))
        return Output(0, answer, "") if isinstance(answer, str) else answer

    async def ask(self, argv: Sequence[str], timeout: float = 30.0) -> Output:
        return await self.run(argv, timeout=timeout)

    async def connect(self) -> None:
        """There is nothing."""


def engine(commands: Scripted, *secrets: str, slurm: str = "") -> SlurmJob:
    table = cluster(slurm).slurm
    assert table is not None
    return SlurmJob(table, "c-1", RULES, commands, secrets)
