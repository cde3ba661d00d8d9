"""Whether a process is below the shell of a Slurm batch script."""

from __future__ import annotations

import os

import pytest

from launcher.slurm.salloc import in_batch_script

BATCH = {"ENVIRONMENT": "BATCH"}


@pytest.mark.parametrize("pid", [os.getppid(), 1])
def test_below_the_shell_of_a_batch_script(pid: int) -> None:
    """The shell's end is this process's end."""
    assert in_batch_script({**BATCH, "SLURM_TASK_PID": str(pid)})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_TASK_PID": str(os.getppid())},  # a shell of salloc, which stays
        {**BATCH, "SLURM_TASK_PID": str(os.getpid())},  # by exec
        {**BATCH, "SLURM_TASK_PID": str(1 << 22)},  # of another machine
        {**BATCH, "SLURM_TASK_PID": "x"},
        BATCH,
    ],
)
def test_not_below_it(environ: dict[str, str]) -> None:
    """In its place, elsewhere, or in another kind of shell."""
    assert not in_batch_script(environ)
