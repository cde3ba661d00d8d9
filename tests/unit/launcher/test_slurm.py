"""Answers of Slurm as they come, and as no Slurm would give them; the script, and the table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError
from launcher.plan.facts import HostFacts
from launcher.plan.planner import make_plan
from launcher.run.events import EngineWord
from launcher.slurm.job import JobState, UserJob, advice_on
from launcher.slurm.login import MissingProgramError, NoAnswerError, Output, SlurmError
from launcher.slurm.salloc import element_of, in_batch_script
from tests.support.cluster_texts import cluster_on_slurm as cluster
from tests.support.cluster_texts import on_slurm
from tests.support.slurm_commands import RULES, Scripted, engine, row

INVALID = Output(1, "", "slurm_load_jobs error: Invalid job id specified")


async def test_the_request_is_the_script_and_the_options_of_the_file() -> None:
    """sbatch reads the script from its input; `;CLUSTER` behind the id is no part of it."""
    commands = Scripted(sbatch="8123;main\n", config="ClusterName             = main\n")
    asking = engine(commands, slurm='options = ["--account=p 1"]')
    assert await asking.request() == "8123"
    asked = commands.asked[-1]
    assert ("scancel", "--clusters=main", "8123") not in commands.asked
    asked = next(argv for argv in commands.asked if argv[0] == "sbatch")
    assert asked[:3] == ("sbatch", "--account=p 1", "--parsable")
    assert {"--job-name=tfmux-c-1", "--nodes=2", "--time=10", "--no-requeue"} <= set(asked[3:])
    assert commands.stdin.startswith("#!/bin/sh\n") and "python3 -IS -c" in commands.stdin
    await engine(commands, slurm='python = "/opt/py 3/bin/python"').request()
    assert "'/opt/py 3/bin/python' -IS -c" in commands.stdin


async def test_a_job_on_another_cluster_is_cancelled_there() -> None:
    """Its number may be that of another job here, which would be watched, and cancelled."""
    commands = Scripted(sbatch="8123;other\n", config="ClusterName = main\n", scancel="")
    with pytest.raises(SlurmError, match="submitted to the cluster other") as raised:
        await engine(commands).request()
    assert "login" in raised.value.todo and not isinstance(raised.value, NoAnswerError)
    cancels = [argv for argv in commands.asked if argv[0] == "scancel"]
    assert cancels == [("scancel", "--clusters=other", "8123")]


@pytest.mark.parametrize("config", ["", Output(1, "", "slurm_load_ctl_conf error: timed out")])
async def test_a_job_is_not_said_to_be_elsewhere_when_slurm_does_not_say_so(
    config: Output | str,
) -> None:
    """The job is cancelled, since its number cannot be trusted, and the reason is the missing
    answer."""
    commands = Scripted(sbatch="8123;mine\n", config=config, scancel="")
    with pytest.raises(SlurmError) as raised:
        await engine(commands).request()
    said = f"{raised.value} {raised.value.todo}"
    assert "of another" not in said and "SBATCH_CLUSTERS" not in said
    assert "scontrol show config" in said
    assert isinstance(config, str) or "timed out" in said
    assert ("scancel", "--clusters=mine", "8123") in commands.asked


async def test_a_job_on_another_cluster_that_cannot_be_cancelled_is_named() -> None:
    """The person has to do it."""
    commands = Scripted(sbatch="8123;other\n", config="ClusterName = main\n")
    with pytest.raises(SlurmError, match="scancel --clusters=other 8123"):
        await engine(commands).request()


async def test_what_tfmux_asks_for_is_behind_the_options_of_the_file() -> None:
    """sbatch takes abbreviations, and the last value; a test of the request is the same request,
    whatever an option without its value swallows."""
    commands = Scripted(sbatch="8123\n")
    table = 'partition = "gpu"\ngpus = 2\noptions = ["--part=debug", "--job=mine", "--account"]'
    asking = engine(commands, slurm=table)
    await asking.request()
    asked = commands.asked[-1]
    for option in ("--partition=gpu", "--job-name=tfmux-c-1", "--gpus-per-node=2"):
        assert asked.index(option) > asked.index("--account") + 1
    with suppress(SlurmError):
        await anext(asking.examine())
    assert commands.asked[-1] == (*asked, "--test-only")
    assert "#SBATCH" not in commands.stdin


async def test_variables_that_no_option_undoes_are_unset_on_a_login_host() -> None:
    """They would make sbatch wait for the job's end, or submit several."""
    commands = Scripted(sbatch="8123\n")
    await engine(commands, slurm='login = "me@login"').request()
    assert commands.asked[-1][:6] == (
        "env",
        "-u",
        "SBATCH_ARRAY_INX",
        "-u",
        "SBATCH_WAIT",
        "sbatch",
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Output(1, "", "sbatch: error: invalid partition specified: x\nsbatch: error: no\n"), "x"),
        (Output(1, "", "\x1b]0;evil\x07sbatch: no\n"), "sbatch: no"),
        (Output(0, "", ""), "sbatch ended with 0 and printed nothing"),
        (Output(1, "", ""), "sbatch ended with 1 and printed nothing"),
        (Output(0, "not a number", ""), "not a number"),
        (Output(0, "9" * 400, ""), "999"),
    ],
)
async def test_what_sbatch_says_when_it_refuses_is_the_error(answer: Output, said: str) -> None:
    """In one printable line."""
    with pytest.raises(SlurmError) as caught:
        await engine(Scripted(sbatch=answer)).request()
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


async def test_a_pending_job_has_a_reason_and_a_time() -> None:
    """As squeue prints them."""
    line = row("PENDING", reason="Resources", start="2026-11-22T18:40:00")
    assert await engine(Scripted(squeue=line)).poll("7") == JobState(
        "PENDING", "Resources", expected=1_795_372_800.0
    )
    waiting = await engine(Scripted(squeue=row("PENDING", reason="Priority"))).poll("7")
    assert waiting == JobState("PENDING", "Priority")


async def test_a_running_job_has_nodes() -> None:
    """Slurm itself expands its lists of nodes."""
    commands = Scripted(squeue=row("RUNNING", "sl[1-2]"), hostnames="sl1\nsl2\n")
    assert await engine(commands).poll("7") == JobState("RUNNING", nodes=("sl1", "sl2"))
    assert commands.asked[1] == ("scontrol", "show", "hostnames", "sl[1-2]")


@pytest.mark.parametrize("names", ["sl1\n-oProxyCommand=x\n", "a;b\n", "\x1b[2J\n", "x " * 5000])
async def test_names_that_are_none_are_refused(names: str) -> None:
    """They become arguments of srun."""
    commands = Scripted(squeue=row("RUNNING", "sl[1-2]"), hostnames=names)
    with pytest.raises(SlurmError, match="did not print names of nodes"):
        await engine(commands).poll("7")


async def test_an_invalid_job_id_is_not_the_end_while_scontrol_knows_the_job() -> None:
    """squeue says so right after sbatch, too."""
    shown = "JobId=7 JobName=x JobState=PENDING Reason=None StartTime=Unknown NodeList=(null)\n"
    assert await engine(Scripted(squeue=INVALID, scontrol=shown)).poll("7") == JobState("PENDING")
    shown = "JobId=7 JobState=TIMEOUT Reason=TimeLimit NodeList=sl1\n"
    state = await engine(Scripted(squeue=INVALID, scontrol=shown)).poll("7")
    assert state == JobState("TIMEOUT", "TimeLimit", over=True)
    assert (await engine(Scripted(squeue=INVALID, scontrol=INVALID)).poll("7")).over


@pytest.mark.parametrize(
    ("queue", "shown", "said"),
    [
        (row("RUNNING", "sl1"), "", ""),
        (row("SUSPENDED", "sl1"), "", ""),
        (row("PENDING"), "", ""),
        (
            row("CANCELLED"),
            "JobId=7 JobState=CANCELLED Reason=None",
            "Slurm 7 has ended: CANCELLED",
        ),
        (
            INVALID,
            "JobId=7 JobState=TIMEOUT Reason=TimeLimit",
            "Slurm 7 has ended: TIMEOUT (TimeLimit)",
        ),
        (
            row("X"),
            "JobId=8 JobState=RUNNING\nJobId=7 JobState=PREEMPTED Reason=None",
            "Slurm 7 has ended: PREEMPTED",
        ),
        (
            row("COMPLETING", "sl1"),
            "JobId=7 JobState=FAILED Reason=None Comment=JobState=RUNNING Reason=b",
            "Slurm 7 has ended: FAILED",
        ),
        (INVALID, INVALID, "Slurm 7 has ended: GONE (Slurm no longer knows the job)"),
    ],
)
async def test_the_end_of_a_job_is_a_sentence(
    queue: str | Output, shown: str | Output, said: str
) -> None:
    """Which `tfmux ps` says of a run without a launcher; nothing while the job is there."""
    commands = Scripted(squeue=queue, scontrol=shown, hostnames="sl1\n")
    assert await engine(commands).end("7") == said


async def test_no_answer_is_no_end() -> None:
    """A controller that is down says nothing of the job."""
    down = Output(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(SlurmError, match="Unable to contact"):
        await engine(Scripted(squeue=down)).poll("7")
    with pytest.raises(SlurmError, match="Unable to contact"):
        await engine(Scripted(squeue=INVALID, scontrol=down)).poll("7")
    with pytest.raises(SlurmError, match="Unable to contact"):
        await engine(Scripted(squeue=down)).end("7")


@pytest.mark.parametrize(
    "line",
    [
        *("", "garbage", "A|B|C", "||||", "x" * 100_000, "\0|\0|\0|\0|\0"),
        *(row("RUNNING"), row("RUNNING", "(null)"), row("RUNNING", "sl1", job="70")),
        *(row("RUNNING", "sl1", job="-7"), row("RUNNING", "sl1", job="٧"), "banner\n"),
    ],
)
async def test_answers_that_are_none(line: str) -> None:
    """Silence with status 0, another's job, and nodes without names are no answer: neither that the
    job has ended nor that it has left its nodes."""
    config = "ProctrackType = proctrack/cgroup\n"
    commands = Scripted(squeue=line, scontrol=line, sinfo="sl1|idle\n", config=config)
    with pytest.raises(SlurmError):
        await engine(commands).poll("7")
    with suppress(SlurmError):
        assert not (await engine(commands).words("7", ["sl1"]))["sl1"].gone


async def test_a_row_is_that_of_the_job_among_those_of_its_array() -> None:
    """squeue prints all elements of an array for the id of its last one, and a reason may have the
    mark between columns."""
    lines = row("PENDING", reason="JobArrayTaskLimit", job="12") + row("RUNNING", "sl1", job="9")
    lines += row("RUNNING", "sl2", job="7", reason="a|b|c") + row("PENDING", job="8")
    commands = Scripted(squeue=lines, hostnames="sl2\n")
    assert (await engine(commands).poll("7")).nodes == ("sl2",)
    assert commands.asked[1] == ("scontrol", "show", "hostnames", "sl2")


@pytest.mark.parametrize(
    ("output", "job"),
    [
        ("12\n9\n", "12"),
        ("12;main\n", "12"),
        ("", ""),
        ("12 34\n-5\n1e3\n0x10\n12_4\n12+1\n", ""),
        ("\x1b[2J7\n\x008\n٣\n", ""),
        ("9" * 400 + "\n", ""),
        ("JOBID\n" * 100_000, ""),
    ],
)
async def test_only_ids_are_taken_from_a_list_of_jobs(output: str, job: str) -> None:
    """Ids are those of the user's own jobs with the run's own name: others may have taken it for
    theirs."""
    commands = Scripted(squeue=output)
    assert await engine(commands).find() == job
    assert {"--me", "-n", "tfmux-c-1"} <= set(commands.asked[0])


async def test_a_job_that_was_put_back_into_the_queue_has_ended() -> None:
    shown = "JobId=7 JobState=COMPLETING Reason=None Requeue=1 Restarts=1 NodeList=sl1\n"
    state = await engine(Scripted(squeue=row("COMPLETING", "sl1"), scontrol=shown)).poll("7")
    assert state.over and state.state == "REQUEUED"


async def test_a_job_whose_agents_did_not_start_says_what_to_change() -> None:
    """The job is over before anybody has reached a node."""
    shown = "JobId=7 JobState=FAILED Reason=NonZeroExitCode Restarts=0 ExitCode=127:0\n"
    state = await engine(Scripted(squeue=row("FAILED"), scontrol=shown)).poll("7")
    assert state.over and "python in [slurm]" in state.advice


async def test_a_missing_sbatch_comes_with_what_to_do() -> None:
    """Here, and on a login host whose shell says so."""
    there = Scripted(sbatch=Output(127, "", "bash: line 1: sbatch: command not found"))
    with pytest.raises(MissingProgramError, match=r"not found; login in \[slurm\] must be"):
        await engine(there).request()


async def test_a_request_without_an_answer_may_be_carried_out() -> None:
    """What a person does then is said."""

    class Silent(Scripted):
        async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
            raise NoAnswerError(f"{argv[0]} did not answer")

    with pytest.raises(NoAnswerError, match="starts after all: scancel --me --name=tfmux-c-1"):
        await engine(Silent()).request()


@pytest.mark.parametrize(
    ("refusal", "todo"),
    [
        ("sbatch: error: invalid partition specified: x", "sinfo -s"),
        ("Invalid account or account/partition combination specified", "correct --account"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "shorter time"),
        ("Job submit/allocate failed: Access/permission denied", "may not submit"),
        ("munge_encode failed: Failed to access /run/munge.socket.2", "munge does not work"),
        ("Batch job submission failed: Unable to contact slurm controller", "try later"),
        ("anything else", ""),
    ],
)
def test_advice_on_refusals(refusal: str, todo: str) -> None:
    """The advice follows sbatch's words; where they are not known there is none."""
    said = advice_on(refusal)
    assert todo in said and bool(said) == bool(todo)


async def test_slurms_word_counts_under_three_conditions() -> None:
    """The node has left the job's list, it is up, and Slurm tracks processes by cgroups."""
    config = "ProctrackType           = proctrack/cgroup\n"
    commands = Scripted(
        squeue=row("COMPLETING", "sl[2-3]"),
        hostnames="sl2\nsl3\n",
        sinfo="sl1|idle\nsl1|idle\nsl2|completing\nsl3|down*\nsl4|idle*\n",
        config=config,
    )
    said = await engine(commands).words("7", ["sl1", "sl2", "sl3", "sl4", "sl5"])
    assert said["sl1"] == EngineWord(True, "Slurm agrees")
    assert said["sl2"] == EngineWord(False, "Slurm has not seen the end there yet", final=False)
    assert said["sl3"].text == "Slurm cannot confirm it: the node is down*"
    assert said["sl4"].text == "Slurm cannot confirm it: the node is idle*"
    assert said["sl5"].text == "Slurm does not know the node"
    gone = Scripted(squeue=INVALID, sinfo="sl1|idle\n", config=config.replace("cgroup", "pgid"))
    word = (await engine(gone).words("7", ["sl1"]))["sl1"]
    assert not word.gone and "proctrack/cgroup" in word.text


@pytest.mark.parametrize(
    ("states", "gone"),
    [
        *((state, True) for state in ("idle", "mixed", "ALLOCATED+", "idle-", "maint", "mixed@")),
        *(
            (state, False)
            for state in ("drained", "draining", "drained*", "idle~", "idle#", "down")
        ),
        *((state, False) for state in ("unknown", "inval", "reboot^", "powering_down", "x" * 9999)),
        *((state, False) for state in ("", "\x1b[2Jidle\x07", "idle|idle", "idle\nsl1|down*")),
        ("down*\nsl1|idle", False),
    ],
)
async def test_slurms_word_does_not_count_of_a_node_that_it_does_not_hear_or_has_drained(
    states: str, gone: bool
) -> None:
    """Slurm drains a node where it could not end a job's processes, and calls the job ended; words
    that are not known are no proof. A node of two partitions has two rows."""
    commands = Scripted(
        squeue=row("CANCELLED"),
        sinfo=f"sl1|{states}\n",
        config="ProctrackType = proctrack/cgroup\n",
    )
    assert (await engine(commands).words("7", ["sl1"]))["sl1"].gone is gone


async def test_a_job_that_runs_has_left_no_node() -> None:
    """scancel has not come through."""
    commands = Scripted(
        squeue=row("RUNNING", "sl1"),
        hostnames="sl1\n",
        sinfo="sl1|allocated\n",
        config="ProctrackType = proctrack/cgroup\n",
    )
    word = (await engine(commands).words("7", ["sl1"]))["sl1"]
    assert not word.gone and not word.final


async def test_cancelling_what_has_ended_is_no_error() -> None:
    await engine(Scripted(scancel=INVALID)).release("7")
    completing = Output(
        1, "", "scancel: error: Kill job error: Job/step already completing or completed"
    )
    await engine(Scripted(scancel=completing)).release("7")
    with pytest.raises(SlurmError, match="not permitted"):
        await engine(Scripted(scancel=Output(1, "", "not permitted"))).release("7")


def test_the_way_to_a_node_takes_secrets_out() -> None:
    """srun passes its environment on, over the cluster's network."""
    way = engine(Scripted(), "TOKEN", "A").reach("7", "sl1")
    assert way[:5] == ("env", "-u", "A", "-u", "TOKEN")
    assert way[5] == engine(Scripted()).reach("7", "sl1")[0] == "srun"
    assert {"--jobid=7", "--overlap", "-u", "--mpi=none"} <= set(way)


# --- the file ---------------------------------------------------------------------------------


def problems(slurm: str = "", second: str = "node1", more: str = "") -> str:
    with pytest.raises(ClusterFileError) as caught:
        cluster(slurm, second, more)
    return str(caught.value)


def test_the_nodes_are_hosts() -> None:
    """Before Slurm has given them nothing reaches them, and they are not this machine."""
    plan = make_plan(cluster('python = "/opt/python"\ngpus = 2'), "c-1")
    assert [(host.name, host.address, host.via, host.python) for host in plan.hosts] == [
        ("node0", "node0", ("false",), "/opt/python"),
        ("node1", "node1", ("false",), "/opt/python"),
    ]
    assert all(host.has_agent and not host.local for host in plan.hosts)
    assert plan.tasks[0].address == "node0:auto"


@pytest.mark.parametrize(
    ("slurm", "given", "expected"),
    [
        ("gpus = 2", "2,5", ["2", "5"]),
        ("gpus = 2", "", ["0", "1"]),
        ("", "3,4", ["3", "4"]),
        ("", "GPU-ab,GPU-cd", ["GPU-ab", "GPU-cd"]),
        ("", "NoDevFiles", [None, None]),
        ("", "$(reboot),1", [None, None]),
    ],
)
def test_tasks_share_the_gpus_that_their_step_was_given(
    slurm: str, given: str, expected: list[str | None]
) -> None:
    """Not those from 0 on: other jobs have them."""
    facts = {"node0": HostFacts(gpus=8, environ={"CUDA_VISIBLE_DEVICES": given})}
    plan = make_plan(cluster(slurm, second="node0"), "c-1", facts)
    assert [task.env.get("CUDA_VISIBLE_DEVICES") for task in plan.tasks] == expected


def test_hosts_and_slurm_exclude_each_other() -> None:
    said = problems(more='[hosts.tf1]\nssh = "tf1"\n')
    assert "hosts.tf1: the hosts come from Slurm, as node0 … node1: remove this one" in said


def test_tasks_on_more_nodes_than_asked_for() -> None:
    assert "Slurm gives node0 … node1: use one of them, or ask for more nodes" in problems(
        second="node2"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('time = "soon"', "write a time in quotes"),
        ("time = 30", "write a time in quotes"),
        ("nodes = 0", "write a number from 1 on"),
        ('options = "--account=x"', "write a list"),
        ('options = ["-A x"]', "write an option of sbatch as one text"),
        ('options = ["--account=x\\n#SBATCH"]', "write an option of sbatch as one text"),
        ('options = ["--nodes=9"]', "--nodes is tfmux's own (write nodes in [slurm]): remove it"),
        ('options = ["--requeue"]', "must not start again"),
        ('partition = "a b"', "write the partition's name"),
        ('python = "~/x/python"', "not expanded by srun"),
        ('login = "me@:22"', "slurm.login"),
        ('partion = "x"', 'did you mean "partition"?'),
    ],
)
def test_bad_values_are_named(line: str, said: str) -> None:
    key = line.partition(" ")[0]
    text = on_slurm(slurm=line, second="node1")
    if key in ("time", "nodes"):
        text = text.replace('time = "10"\n' if key == "time" else "nodes = 2\n", "", 1)
    with pytest.raises(ClusterFileError) as caught:
        loads(text, "c.toml", Path("/srv"))
    assert said in str(caught.value) and len(caught.value.problems) == 1


def test_what_is_required_is_named() -> None:
    """A request without a time limit could hold its nodes for ever."""
    for slurm, said in (
        ("", "write such as nodes = 4"),
        ("nodes = 4", 'write such as time = "04:00:00"'),
    ):
        text = f'[slurm]\n{slurm}\n[jobs.w]\ntasks = ["node0:1"]\ncommand = ["x"]\n'
        with pytest.raises(ClusterFileError) as caught:
            loads(text, "c", Path("/"))
        assert said in str(caught.value)


def test_ports_of_nodes_are_their_own() -> None:
    """Two nodes are two machines, whatever the login is."""
    text = on_slurm(slurm='login = "me@login"', second="node1").replace(":auto", ":2222")
    assert loads(text, "c.toml", Path("/srv")).slurm is not None


# Settings of Slurm, reasons of jobs that wait, and jobs that were there before.


async def test_a_slurm_that_does_not_tell_its_limits_refuses_nothing() -> None:
    """Also where the job is there already: a launch goes on without them."""
    table = cluster().slurm
    assert table is not None
    table = table.model_copy(update={"time": None, "job": "7"})
    denied = Output(1, "", "access denied to show config")
    commands = Scripted(squeue=row("RUNNING", "sl[1-2]"), hostnames="sl1\nsl2\n", config=denied)
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
    state = await engine(Scripted(squeue=row("PENDING", reason=reason))).poll("7")
    assert (todo in state.advice) and bool(state.advice) is bool(todo)


IN_JOB = 'job = "8123"'


def in_job(commands: Scripted) -> UserJob:
    text = on_slurm(IN_JOB, time="")
    table = loads(text, "c.toml", Path("/srv")).slurm
    assert table is not None
    return UserJob(table, "c-1", RULES, commands)


@pytest.mark.parametrize(
    ("squeue", "of_shell", "said"),
    [
        (
            INVALID,
            "8123",
            "Slurm no longer knows the job; SLURM_JOB_ID of this shell names it: unset",
        ),
        (INVALID, "8124", "Slurm no longer knows the job; write a job that runs"),
        (row("CANCELLED", job="8123"), "8123", "it is CANCELLED; SLURM_JOB_ID of this shell"),
        (row("RUNNING", "sl1", job="8124"), "8123", "squeue says nothing of job 8123"),
    ],
)
async def test_the_job_of_a_shell_that_has_ended_is_said_to_be_the_shells(
    monkeypatch: pytest.MonkeyPatch, squeue: str | Output, of_shell: str, said: str
) -> None:
    """Its variables stay in terminals that were opened in it, and nobody has written its id."""
    monkeypatch.setenv("SLURM_JOB_ID", of_shell)
    shown = INVALID if squeue is INVALID else "JobId=8123 JobState=CANCELLED Reason=None\n"
    with pytest.raises(SlurmError, match=said):
        await in_job(Scripted(squeue=squeue, scontrol=shown)).request()


async def test_steps_of_others_in_a_job_are_not_ours() -> None:
    """Only those with the run's name are cancelled, and only they hold a node."""
    commands = Scripted(
        steps="8123.0|tfmux-c-1|sl1\n8123.1|bash|sl2\n8123.batch|batch|sl1\n",
        squeue=row("RUNNING", "sl[1-3]", job="8123"),
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
        squeue=row("RUNNING", "sl[0-99]", job="8123"),
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


# Whether a process is below the shell of a Slurm batch script.

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


OF_A_JOB = {"SLURM_JOB_ID": "8120", "SLURM_JOB_NODELIST": "sl1"}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({}, "8120"),
        ({"SLURM_ARRAY_JOB_ID": "8120", "SLURM_ARRAY_TASK_ID": "3"}, "8120_3"),
        ({"SLURM_ARRAY_JOB_ID": "8119", "SLURM_ARRAY_TASK_ID": "0"}, "8119_0"),
        ({"SLURM_ARRAY_JOB_ID": "8120", "SLURM_ARRAY_TASK_ID": "3,5"}, "8120"),
        ({"SLURM_ARRAY_JOB_ID": "--all", "SLURM_ARRAY_TASK_ID": "3"}, "8120"),
        ({"SLURM_JOB_ID": "x"}, ""),
    ],
)
def test_an_element_of_an_array_is_not_the_array(more: dict[str, str], named: str) -> None:
    """The last element has the array's id, and scancel would signal all of them."""
    assert element_of({**OF_A_JOB, **more}) == named
