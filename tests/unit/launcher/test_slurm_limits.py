"""Settings of Slurm, reasons of jobs that wait, and jobs that were there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError
from launcher.slurm.job import UserJob
from launcher.slurm.login import Output
from tests.support.cluster_texts import cluster_on_slurm as cluster
from tests.support.cluster_texts import on_slurm
from tests.support.slurm_commands import RULES, Scripted, engine


async def test_a_slurm_that_does_not_tell_its_limits_refuses_nothing() -> None:
    """Also where the job is there already: a launch goes on without them."""
    table = cluster().slurm
    assert table is not None
    table = table.model_copy(update={"time": None, "job": "7"})
    denied = Output(1, "", "access denied to show config")
    commands = Scripted(squeue="RUNNING|None|N/A|sl[1-2]\n", hostnames="sl1\nsl2\n", config=denied)
    findings = [each async for each in UserJob(table, "c-1", RULES, commands).examine()]
    assert [each.code for each in findings] == ["", "slurm-silent"]


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("PartitionConfig", "shorter time"),
        ("PartitionNodeLimit", "write a smaller nodes"),
        ("PartitionTimeLimit", "write a shorter time"),
        ("Job's account not known, so it can't use this partition (members allows proj)", "acco"),
        ("Job's QOS not permitted to use this partition (x)", "--qos"),
        ("Resources", ""),
    ],
)
async def test_reasons_in_words_and_sentences(reason: str, todo: str) -> None:
    """Advice only where waiting does not help."""
    state = await engine(Scripted(squeue=f"PENDING|{reason}|N/A|\n")).poll("7")
    assert (todo in state.advice) and bool(state.advice) is bool(todo)


IN_JOB = 'job = "8123"'


def in_job(commands: Scripted) -> UserJob:
    text = on_slurm(IN_JOB, time="")
    table = loads(text, "c.toml", Path("/srv")).slurm
    assert table is not None
    return UserJob(table, "c-1", RULES, commands)


async def test_steps_of_others_in_a_job_are_not_ours() -> None:
    """Only those with the run's name are cancelled, and only they hold a node."""
    commands = Scripted(
        steps="8123.0|tfmux-c-1|sl1\n8123.1|bash|sl2\n8123.batch|batch|sl1\n",
        squeue="RUNNING|None|N/A|sl[1-3]\n",
        hostnames="sl1\n",
        sinfo="sl1|allocated\nsl2|allocated\n",
        config="ProctrackType = proctrack/cgroup\n",
        scancel="",
    )
    asking = in_job(commands)
    assert await asking.find() == "8123"
    await asking.release("8123")
    assert ("scancel", "8123.0") in commands.asked
    words = await asking.words("8123", ["sl1", "sl2"])
    assert [word.gone for word in words.values()] == [False, True]
    assert not words["sl1"].final
    assert "tfmux-c-1" in asking.cancel_command("8123")
    empty = in_job(Scripted(steps="8123.1|bash|sl2\n"))
    assert await empty.find() == ""
    await empty.release("8123")


async def test_steps_on_many_nodes_take_few_commands() -> None:
    """Slurm expands the nodes of all steps at once, and only for its word on them."""
    steps = "".join(f"8123.{number}|tfmux-c-1|sl{number % 100}\n" for number in range(200))
    commands = Scripted(
        steps=steps + "8123.200|tfmux-c-1|\n",
        squeue="RUNNING|None|N/A|sl[0-99]\n",
        hostnames="".join(f"sl{number}\n" for number in range(100)),
        sinfo="".join(f"sl{number}|allocated\n" for number in range(101)),
        config="ProctrackType = proctrack/cgroup\n",
        scancel="",
    )
    asking = in_job(commands)
    await asking.find()
    await asking.release("8123")
    assert [argv[0] for argv in commands.asked] == ["squeue", "squeue", "scancel"]
    assert len(commands.asked[-1]) == 202
    words = await asking.words("8123", ["sl0", "sl99", "sl100"])
    assert [word.gone for word in words.values()] == [False, False, True]
    expanded = [argv[-1] for argv in commands.asked if "hostnames" in argv]
    assert expanded[0] == "sl[0-99]" and len(expanded) == 2
    assert sorted(expanded[1].split(",")) == sorted(f"sl{number}" for number in range(100))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('time = "10"\npartition = "x"', "slurm.time.*remove time"),
        ('time = "10"\noptions = ["--x"]', "slurm.options.*remove options"),
    ],
)
def test_a_job_that_is_there_is_asked_for_nothing(lines: str, said: str) -> None:
    """`time` and the like would have no effect."""
    text = on_slurm(f"{IN_JOB}\n{lines}", time="")
    with pytest.raises(ClusterFileError, match=said):
        loads(text, "c.toml", Path("/srv"))
