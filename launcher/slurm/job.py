"""The job of a run: nodes by `sbatch`, the way to one by `srun`, Slurm's word on what is left.

Texts are parsed from `-o` formats: the JSON of Slurm's commands differs between versions. An
"Invalid job id" is said right after `sbatch` and after the end alike, so `scontrol` is asked then.

A job that was there before the run, such as one of `salloc`, gets job steps. The agents are steps,
as in a job of the run's own, so the lease, `keep`, detaching and `attach` hold. What is released at
the end, and what Slurm's word is about, are these steps alone.
"""

from __future__ import annotations

import asyncio
import calendar
import os
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..agent.wire import NO_FOLDER_STATUS
from ..cluster.file_model import Slurm
from ..errors import TfmuxError
from ..frozen import frozen
from ..hosts.frames import Rules
from ..plan.run_plan import Plan, SshTarget
from ..printable import printable
from ..run.events import EngineWord
from .limits import (
    CGROUP,
    Limits,
    LimitsVerdict,
    SlurmFinding,
    Subject,
    limit_findings,
    parse_config,
)
from .login import (
    Commands,
    LocalCommands,
    LoginCommands,
    MissingProgramError,
    NoAnswerError,
    Output,
    SlurmError,
)
from .script import UNSET, job_name, job_request, script_in_job

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector

_SUBMIT_SECONDS = 60.0
_SECONDS = 20.0
_JOB = re.compile(r"([0-9]{1,15})(?:;([\w.-]+))?")
_FIELD = re.compile(r"(?:^|\s)(JobState|Reason|NodeList|StartTime|Restarts|ExitCode)=(\S*)")
_GONE = ("nvalid job id", "already completing or completed")
"""What Slurm's commands say of a job or a step that has ended; their status is always 1."""
_WAITING = frozenset(
    "PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD SPECIAL_EXIT".split()
)
_AT_WORK = frozenset("RUNNING SUSPENDED RESIZING SIGNALING STAGE_OUT STOPPED".split())
_ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED "
    "TIMEOUT".split()
)
_ROW = "%A|%T|%S|%N|%r"
"""Format of squeue: id, state, start, nodes and reason of a job. Asked for the last element of an
array, or for a heterogeneous job, it prints others', too. A reason may be anybody's text."""
_PARTS = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)")
"""What a job has on some of its nodes, in `scontrol -d show job`."""
_GRES = re.compile(r"([A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?):(\d{1,9})(?=[(,]|$)")
_COMPLETING = "COMPLETING"
_UNKNOWN = "GONE"
_UP = frozenset("allocated blocked completing idle maint mixed planned reserved".split())
_HARMLESS = "+$-@"
"""Marks behind a node's state: of jobs that end, of reservations and plans."""
_LONGEST_RECORD = 1 << 17
"""Characters of a job's line; a thousand nodes have no more."""
_NO_PROGRAM = 127
_MOST_NODES = 4096
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_START_SECONDS = 10.0
"""How long the steps are waited for; the launcher waits for the agents in them after that."""
_LOOK_AGAIN = 0.3

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
"""Sentences for reasons that are no words of Slurm's list."""

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
    "the interpreter was not found on a node: set python in [slurm] to a Python 3.8 or newer there"
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
        ("munge|authentication", "munge does not work on that machine: ask its administrator"),
        (
            "denied|not permitted|invalid user",
            "this user may not submit that: write another partition or --account",
        ),
        ("unable to contact|socket timed out", "Slurm's controller does not answer: try later"),
    )
)
_ADVICE = {"126:0": NO_PYTHON, "127:0": NO_PYTHON, f"{NO_FOLDER_STATUS}:0": NO_FOLDER}
"""By the exit code of the batch script: a shell whose command could not be started, an agent."""


@frozen
class JobState:
    """State of a job at one look."""

    state: str
    """Slurm's word for it."""
    reason: str = ""
    """Why it waits."""
    expected: float | None = None
    """When Slurm expects it to start, in seconds since the epoch."""
    advice: str = ""
    """Why it will never start, or why it has ended, and what to change."""
    nodes: tuple[str, ...] = ()
    """The names of its nodes; empty until it runs."""
    over: bool = False
    """The job has ended, or is about to."""
    unknown: bool = False
    """Slurm knows no such job, or no agent in it. An agent that is heard knows better."""


@frozen
class _Row:
    """What squeue prints of a job."""

    state: str
    start: str
    nodes: str
    reason: str


class SlurmJob:
    """The job of one run. Every method has a deadline of its own."""

    owns_job = True
    """The job is made for the run. Otherwise the job was there before, and stays: `release` ends
    what the run has started in it."""

    def __init__(
        self,
        table: Slurm,
        run_id: str,
        rules: Rules,
        commands: Commands,
        secrets: Collection[str] = (),
    ) -> None:
        """`secrets` are variables of the launcher that srun must not pass on."""
        self._table = table
        self._run_id = run_id
        self._rules = rules
        self._commands = commands
        self._secrets = tuple(sorted(secrets))
        self._limits: Limits | None = None

    async def connect(self) -> None:
        """Logs in, where `login` is given.

        Raises:
            HostError: the login failed.
        """
        await self._commands.connect()

    async def request(self) -> str:
        """Submits the batch script; returns the job's id.

        Raises:
            NoAnswerError: sbatch did not end, or gave no id.
            SlurmError: with sbatch's words.
        """
        try:
            output = await self._submit()
        except NoAnswerError as error:
            todo = f"if its job starts after all: {self.cancel_command('')}"
            raise NoAnswerError(error.what, todo) from error
        if output.status != 0:
            raise _refusal(output)
        found = _JOB.fullmatch(output.stdout.strip().rpartition("\n")[2])
        if found is None:
            said = output.complaint or "nothing"
            raise NoAnswerError(f"sbatch ended with 0 and printed {said}, which is not a job id")
        if found[2]:
            await self._check_cluster(found[1], found[2])
        return found[1]

    async def _check_cluster(self, job: str, cluster: str) -> None:
        """Cancels a job that is on another cluster than that of this machine, such as by
        `SBATCH_CLUSTERS`, or that may be: its number means another job here.

        Raises:
            SlurmError: it is, or Slurm did not say.
        """
        what = f"it was submitted to the cluster {cluster}"
        try:
            own = (await self.limits()).cluster
            silence = "" if own else ": it names no cluster"
        except TfmuxError as error:
            own, silence = "", f": {error}"
        if own == cluster:
            return
        if own:
            what = f"{what}, and this machine is of another"
            todo = "write a machine of that cluster as login in [slurm], or unset SBATCH_CLUSTERS"
        else:
            what = f"{what}, and whether this machine is of it is not known{silence}"
            todo = "try again when scontrol show config answers here with a ClusterName"
        cancel = ("scancel", f"--clusters={cluster}", job)
        try:
            await self._ask_of_job(*cancel)
        except TfmuxError as error:
            what = f"{what}; it could not be cancelled ({error}): {' '.join(cancel)}"
        raise SlurmError(what, todo)

    async def find(self) -> str:
        """The newest job of this run's name.

        Raises:
            SlurmError: Slurm did not answer.
        """
        name = job_name(self._run_id)
        output = await self._ask("squeue", "--me", "-h", "-n", name, "-o", "%i")
        jobs = [found[1] for line in output.splitlines() if (found := _JOB.fullmatch(line.strip()))]
        return max(jobs, key=int, default="")

    async def poll(self, job: str) -> JobState:
        """Asks for the state of the job.

        Raises:
            SlurmError: Slurm did not answer.
        """
        row = await self._row(job)
        if row is not None and (row.state in _AT_WORK or row.state in _WAITING):
            return await self._job_state(row.state, row.reason, row.start, row.nodes)
        shown = await self._ask_of_job("scontrol", "-o", "show", "job", job)
        if shown is None:
            return JobState(_UNKNOWN, "Slurm no longer knows the job", over=True, unknown=True)
        said: dict[str, str] = {}
        for name, value in _FIELD.findall(_record(job, shown)):
            said.setdefault(name, value)  # behind them are texts of people, such as a comment
        return await self._from_scontrol(said)

    async def _row(self, job: str) -> _Row | None:
        """What squeue says of a job, also of one that has ended; None where it does not know it.

        Raises:
            SlurmError: Slurm did not answer.
        """
        said = await self._ask_of_job("squeue", "-h", "-t", "all", "-j", job, "-o", _ROW)
        for line in (said or "").splitlines():
            words = [word.strip() for word in line.split("|", 4)]
            if len(words) == 5 and words[0] == job:
                return _Row(*words[1:])
        if said is None:
            return None
        raise SlurmError(f"squeue says nothing of job {job}")

    async def _from_scontrol(self, said: Mapping[str, str]) -> JobState:
        """The state of a job that squeue does not know, or that is ending.

        Raises:
            SlurmError: it is no state.
        """
        state, reason = said.get("JobState", ""), said.get("Reason", "")
        if not state:
            raise SlurmError("scontrol says nothing of the job's state")
        if said.get("Restarts", "0") != "0":
            return JobState("REQUEUED", "it was put back into the queue", over=True)
        found = await self._job_state(
            state, reason, said.get("StartTime", ""), said.get("NodeList", "")
        )
        todo = _ADVICE.get(said.get("ExitCode", "")) if found.over else None
        return replace(found, advice=todo) if todo else found

    async def _job_state(self, state: str, reason: str, start: str, nodes: str) -> JobState:
        state, reason = printable(state, 60), printable(reason, 200)
        if reason in ("None", "(null)"):
            reason = ""
        if state in _AT_WORK:
            names = await self._expand(nodes)
            if not names:
                raise SlurmError(f"Slurm names no nodes of a job that is {state}")
            return JobState(state, reason, nodes=names)
        if state in _WAITING:
            advice = advice_on_reason(reason)
            return JobState(state, reason, expected=utc_time(start), advice=advice)
        return JobState(state, reason, over=True)

    async def end(self, job: str) -> str:
        """How the job has ended, in a sentence; empty where it goes on.

        Raises:
            SlurmError: Slurm did not answer.
        """
        state = await self.poll(job)
        why = f" ({state.reason})" if state.reason else ""
        return f"Slurm {job} has ended: {state.state}{why}" if state.over else ""

    async def _expand(self, nodes: str) -> tuple[str, ...]:
        """The names in `sl[1-4]`.

        Raises:
            SlurmError: they are not names.
        """
        if not nodes or nodes == "(null)":
            return ()
        return node_names(await self._ask("scontrol", "show", "hostnames", nodes))

    def reach(self, job: str, node: str) -> tuple[str, ...]:
        """A job step of its own. Without `-u` srun holds bytes back until a newline comes."""
        unset = [word for name in self._secrets for word in ("-u", name)]
        return (
            *(("env", *unset) if unset else ()),
            *("srun", "-Q", f"--jobid={job}", "--overlap", "-N1", "-n1", "-w", node, "-u"),
            *("--mpi=none", "--gres=none", f"--job-name={job_name(self._run_id)}"),
        )

    async def release(self, job: str) -> None:
        """Cancels the job.

        Raises:
            SlurmError: Slurm did not answer, or refused.
        """
        await self._ask_of_job("scancel", job)

    def cancel_command(self, job: str) -> str:
        """By the job's id, else by its name."""
        return f"scancel {job or f'--me --name={job_name(self._run_id)}'}"

    async def words(self, job: str, nodes: Sequence[str]) -> dict[str, EngineWord]:
        """Slurm's word counts of a node that has left the job's list, that is up, and where
        Slurm knows of every process (by cgroups): it calls a job ended whose processes live on a
        node that is down.

        Raises:
            SlurmError: Slurm did not answer.
        """
        held = await self._held(job, nodes)
        said = await self._ask("sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N|%T")
        states: dict[str, str] = {}
        for line in said.splitlines():  # one for each partition
            name, _, word = line.strip().partition("|")
            if _is_up(states.get(name, "idle")):
                states[name] = printable(word, 40)
        contains = (await self.limits()).contains
        return {node: _word(states.get(node, ""), node in held, contains) for node in nodes}

    async def _held(self, job: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes on which Slurm has not seen the end."""
        row = await self._row(job)
        if row is None or row.state in _ENDED:
            return ()
        return await self._expand(row.nodes) if row.state == _COMPLETING else tuple(nodes)

    async def examine(self) -> AsyncIterator[SlurmFinding]:
        """Lets sbatch test the request without submitting it, and reports the settings of Slurm
        that matter to a kill.

        Raises:
            SlurmError: it would refuse it.
        """
        output = await self._submit(test=True)
        if output.status != 0:
            raise _refusal(output)
        said = output.complaint or "sbatch accepts the request"
        yield SlurmFinding(LimitsVerdict.PASSED, "", "accepted", said)
        async for finding in self._examine_limits():
            yield finding

    async def _examine_limits(self) -> AsyncIterator[SlurmFinding]:
        text = "grace fits below KillWait, and Slurm tracks processes by cgroups"
        fine = SlurmFinding(LimitsVerdict.PASSED, "", "fine", text, about=Subject.LIMITS)
        try:
            for finding in await self.cautions() or (fine,):
                yield finding
        except SlurmError as error:
            yield SlurmFinding(LimitsVerdict.WARNING, "slurm-silent", "no answer", str(error))

    async def cautions(self) -> tuple[SlurmFinding, ...]:
        """Findings on settings of Slurm that spoil a kill.

        Raises:
            SlurmError: Slurm did not answer.
        """
        return tuple(limit_findings(await self.limits(), self._rules.grace, self._secrets))

    async def limits(self) -> Limits:
        """Settings of Slurm that matter to a kill.

        Raises:
            SlurmError: Slurm did not answer.
        """
        if self._limits is None:
            said = await self._ask("scontrol", "show", "config")
            self._limits = parse_config(said)
        return self._limits

    async def _submit(self, *, test: bool = False) -> Output:
        asked = job_request(self._table, self._run_id, self._rules)
        argv = (*asked.argv, "--test-only") if test else asked.argv
        try:
            return await self._commands.run(argv, asked.script, _SUBMIT_SECONDS)
        except MissingProgramError as error:
            raise MissingProgramError(error.what, NO_COMMANDS) from error

    async def _ask(self, *argv: str) -> str:
        """The output of a command.

        Raises:
            SlurmError: Slurm did not answer, or refused.
        """
        output = await self._commands.ask(argv, _SECONDS)
        if output.status == 0:
            return output.stdout
        raise output.failure(argv[0])

    async def _ask_of_job(self, *argv: str) -> str | None:
        """The output of a command; None where Slurm says that its job or step has ended, or that
        there is none.

        Raises:
            SlurmError: Slurm did not answer, or refused.
        """
        output = await self._commands.ask(argv, _SECONDS)
        if output.status != 0 and any(words in output.stderr for words in _GONE):
            return None
        if output.status == 0:
            return output.stdout
        raise output.failure(argv[0])


class UserJob(SlurmJob):
    """A job that was there before, such as one of `salloc`, in which a run has job steps."""

    owns_job = False
    _looked = False

    async def request(self) -> str:
        """Starts an agent on each node; returns the job's id.

        Raises:
            SlurmError: the job does not run, has too few nodes, or srun cannot be started.
        """
        job, nodes = self._job, await self._nodes()
        script = script_in_job(self._table, self._run_id, self._rules, await self._gres(nodes))
        output = await self._commands.run(("sh", "-s"), script)
        if output.status != 0:
            raise output.failure("sh")
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if len(await self._steps(job)) >= len(nodes) or time.monotonic() > deadline:
                return job
            await asyncio.sleep(_LOOK_AGAIN)

    async def find(self) -> str:
        """The job, when it has steps of this run.

        Raises:
            SlurmError: Slurm did not answer.
        """
        return self._job if await self._steps(self._job) else ""

    async def poll(self, job: str) -> JobState:
        """Asks for the state of the job; without steps of the run it is over for the run, except at
        the first look: if the agents have ended at once, a bridge reports the reason.

        Raises:
            SlurmError: Slurm did not answer.
        """
        state = await super().poll(job)
        if state.over or not state.nodes:
            return state
        if self._looked and not await self._steps(job):
            return JobState("ENDED", "no agent is left in it", over=True, unknown=True)
        self._looked = True
        return JobState(state.state, nodes=state.nodes[: self._table.nodes])

    async def end(self, job: str) -> str:
        """How the job, or the run's part of it, has ended; empty where it goes on.

        Raises:
            SlurmError: Slurm did not answer.
        """
        said = await super().end(job)
        return said if said or await self._steps(job) else f"Slurm {job} has no step of the run"

    async def release(self, job: str) -> None:
        """Cancels the run's steps.

        Raises:
            SlurmError: Slurm did not answer, or refused.
        """
        if steps := await self._steps(job):
            await self._ask_of_job("scancel", *steps)

    def cancel_command(self, job: str) -> str:
        """By the name of the steps."""
        named = f"awk '$2 == \"{job_name(self._run_id)}\" {{print $1}}'"
        return f"squeue -s -h -j {self._job} -o '%i %j' | {named} | xargs -r scancel"

    async def examine(self) -> AsyncIterator[SlurmFinding]:
        """Whether the job runs and has the nodes, and what of Slurm's configuration matters to a
        kill.

        Raises:
            SlurmError: the job cannot be used.
        """
        nodes = await self._nodes()
        asked = ("squeue", "-h", "-j", self._job, "-o", "%L")
        left = (await self._commands.ask(asked, _SECONDS)).stdout.strip()
        said = f"Slurm {self._job} runs on {', '.join(nodes[:8])}{' …' if len(nodes) > 8 else ''}"
        said += f", for {left} from now on" if left[:1].isdigit() and left.isprintable() else ""
        yield SlurmFinding(LimitsVerdict.PASSED, "", "it runs", said)
        async for finding in self._examine_limits():
            yield finding

    async def _held(self, job: str, nodes: Sequence[str]) -> tuple[str, ...]:
        state = await super().poll(job)
        if state.over or not state.nodes:
            return await super()._held(job, nodes)
        listed = {*(await self._steps(job)).values()} - {"", "(null)"}
        return await self._expand(",".join(sorted(listed)))

    @property
    def _job(self) -> str:
        assert self._table.job is not None
        return self._table.job

    async def _nodes(self) -> tuple[str, ...]:
        """The nodes for the run.

        Raises:
            SlurmError: the job does not run, or has fewer.
        """
        state = await super().poll(self._job)
        if state.over or not state.nodes:
            todo = "write a job that runs"
            if os.environ.get("SLURM_JOB_ID") == self._job:
                todo = "SLURM_JOB_ID of this shell names it: unset SLURM_JOB_ID asks for new nodes"
            why = state.reason if state.state == _UNKNOWN else f"it is {state.state}"
            raise SlurmError(f"job {self._job}: {why}", todo)
        if len(state.nodes) < self._table.nodes:
            what = f"job {self._job} has {len(state.nodes)} nodes, "
            what += f"[slurm] asks for {self._table.nodes}"
            raise SlurmError(what, "ask salloc for more, or write fewer")
        return state.nodes[: self._table.nodes]

    async def _gres(self, nodes: Sequence[str]) -> dict[str, str]:
        """What the job has of GPUs and the like on each node, as `--gres` asks for it.

        Raises:
            SlurmError: Slurm did not answer.
        """
        said = await self._ask("scontrol", "-d", "-o", "show", "job", self._job)
        found = dict.fromkeys(nodes, "")
        for listed, given in _PARTS.findall(_record(self._job, said)):
            gres = ",".join(f"{name}:{count}" for name, count in _GRES.findall(given))
            found.update((node, gres) for node in await self._expand(listed) if node in found)
        return found

    async def _steps(self, job: str) -> dict[str, str]:
        """The run's steps in the job, of agents and of bridges, by their name: each step's id with
        its nodes as Slurm writes them.

        Raises:
            SlurmError: Slurm did not answer.
        """
        name = job_name(self._run_id)
        asked = ("squeue", "-s", "-h", "-j", job, "-o", "%i|%j|%N")
        said = await self._ask_of_job(*asked)
        rows = [line.strip().split("|") for line in (said or "").splitlines()]
        return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == name}


def slurm_job(table: Slurm, plan: Plan, logins: SshConnector | None) -> SlurmJob:
    """The job that `[slurm]` of a cluster file describes, for the run of a plan."""
    rules = Rules.of(plan)
    kind = SlurmJob if table.job is None else UserJob
    secrets = {name for task in plan.tasks for name in task.env_from}
    if table.login is None:
        return kind(
            table, plan.run_id, rules, LocalCommands({*secrets, *UNSET}, table.job or ""), secrets
        )
    assert logins is not None
    login = SshTarget(table.login.user, table.login.host, table.login.port)
    return kind(table, plan.run_id, rules, LoginCommands(logins, login), secrets)


def _record(job: str, shown: str) -> str:
    """The line of a job in what `scontrol -o show job` prints: of the last element of an array, and
    of a heterogeneous job, it prints others' lines, too."""
    lines = (line for line in shown.splitlines() if line.startswith(f"JobId={job} "))
    return next(lines, "")[:_LONGEST_RECORD]


def node_names(printed: str) -> tuple[str, ...]:
    """Reads the names.

    Raises:
        SlurmError: there are none, or too many, or what is printed are no names.
    """
    names = printed.split()
    if not 0 < len(names) <= _MOST_NODES or not all(map(_NODE.fullmatch, names)):
        raise SlurmError("scontrol show hostnames did not print names of nodes")
    return tuple(names)


def advice_on_reason(reason: str) -> str:
    """Advice on a job that waits for this reason; empty if the reason may go away by itself."""
    if todo := HOPELESS.get(reason.partition(",")[0].strip("()")):
        return todo
    return next((todo for pattern, todo in _SENTENCES if pattern.search(reason)), "")


def advice_on(refusal: str) -> str:
    """Advice on a request that sbatch has refused with these words; empty if unknown."""
    return next((todo for pattern, todo in _REFUSALS if pattern.search(refusal)), "")


def _refusal(output: Output) -> SlurmError:
    """Error of a request that sbatch has refused."""
    said = output.complaint or f"sbatch ended with {output.status} and printed nothing"
    if output.status == _NO_PROGRAM:  # of a login shell; this machine's raise an error
        return MissingProgramError(said, NO_COMMANDS_THERE)
    return SlurmError(said, advice_on(said))


def _is_up(state: str) -> bool:
    """Whether Slurm hears of a node, and has seen each job's processes there end: it drains a node
    where some did not."""
    return state.lower().rstrip(_HARMLESS) in _UP


def _word(state: str, held: bool, contains: bool) -> EngineWord:
    if not state:
        return EngineWord(False, "Slurm does not know the node")
    if not _is_up(state):
        return EngineWord(False, f"Slurm cannot confirm it: the node is {state}")
    if held:
        return EngineWord(False, "Slurm has not seen the end there yet", final=False)
    if not contains:
        text = f"Slurm cannot confirm it: it does not track processes by {CGROUP}"
        return EngineWord(False, text)
    return EngineWord(True, "Slurm agrees")


def utc_time(text: str) -> float | None:
    """Seconds since the epoch of `2026-11-22T18:40:00`; None where it is no time."""
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except (ValueError, OverflowError):
        return None
