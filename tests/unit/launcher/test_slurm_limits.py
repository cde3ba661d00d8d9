"""Limits of Slurm's partitions, reasons of jobs that wait, and jobs that were there before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster import loads
from launcher.errors import ClusterFileError
from launcher.slurm.job import UserJob
from launcher.slurm.limits import seconds_of
from launcher.slurm.login import Output, SlurmError
from tests.support.cluster_texts import cluster_on_slurm as cluster
from tests.support.cluster_texts import on_slurm
from tests.support.slurm_commands import RULES, Scripted, engine

PARTITIONS = "all*|infinite\nshort|1:00\nday|1-00:00:00\nodd|n/a\n"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('partition = "short"', "time is 10, but the partition short allows 1:00"),
        ('partition = "short,short"', "short allows 1:00"),
        ('partition = "short,day"', ""),
        ('partition = "odd"', ""),
        ('partition = "unknown"', ""),
        ('partition = "short"\noptions = ["--qos=long"]', ""),
        ('partition = "short"\noptions = ["--q=long"]', ""),
        ('partition = "short"\noptions = ["--reservation=x"]', ""),
        ('partition = "short"\noptions = ["--exclusive"]', "the partition short allows 1:00"),
        ("", ""),
    ],
)
async def test_a_time_beyond_the_partitions_is_not_submitted(table: str, said: str) -> None:
    """Unless another limit may hold, or Slurm does not say: sbatch is asked then."""
    commands = Scripted(sinfo=PARTITIONS, sbatch="8123\n", config="")
    asking = engine(commands, slurm=table)
    if not said:
        assert await asking.request() == "8123"
        return
    for ask in (asking.request, lambda: anext(asking.examine())):
        with pytest.raises(SlurmError, match=said) as caught:
            await ask()
        assert "write a shorter time" in caught.value.todo
    assert not any(argv[0] == "sbatch" for argv in commands.asked)


@pytest.mark.parametrize("partition", ["all*|" + "9" * 5000, "all*|1-" + "9" * 5000 + ":00"])
async def test_a_limit_of_thousands_of_digits_says_nothing(partition: str) -> None:
    """sbatch is asked."""
    commands = Scripted(sinfo=partition + "\n", sbatch="8123\n")
    assert await engine(commands).request() == "8123"


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
    ("table", "variables", "submitted"),
    [
        ("", set(), False),
        ("", {"SBATCH_PARTITION"}, True),
        ('options = ["--part=long"]', set(), True),
        ('partition = "short"', {"SBATCH_PARTITION"}, False),
        ('partition = "short"', {"SBATCH_QOS"}, True),
        ('partition = "short"', {"SBATCH_RESERVATION"}, True),
    ],
)
async def test_a_default_of_the_user_may_have_other_limits(
    table: str, variables: set[str], submitted: bool
) -> None:
    """A variable of sbatch counts where the file says nothing against it."""

    class WithVariables(Scripted):
        async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
            if argv[0] == "printenv":
                found = variables.intersection(argv)
                return Output(0 if found else 1, "x\n" * len(found), "")
            return await super().run(argv, stdin, timeout)

    partitions = PARTITIONS.replace("all*|infinite", "all*|1:00")
    asking = engine(WithVariables(sinfo=partitions, sbatch="8123\n"), slurm=table)
    if submitted:
        assert await asking.request() == "8123"
    else:
        with pytest.raises(SlurmError, match="time is 10, but the partition"):
            await asking.request()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("04:00:00", 14400),
        ("2-12", 216000),
        ("1-0:30", 88200),
        ("1-00:00:01", 86401),
        ("0", math.inf),
        ("infinite", math.inf),
        ("n/a", math.inf),
        ("", None),
        ("x", None),
        ("1:2:3:4", None),
    ],
)
def test_times_of_slurm(text: str, seconds: float | None) -> None:
    """As `sbatch --time` takes them, and `sinfo` prints them."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("PartitionConfig", "shorter time"),
        ("PartitionNodeLimit", "write a smaller nodes"),
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
