"""Slurm: nodes by `sbatch`, the way to a node by `srun`, and Slurm's word by `squeue` and `sinfo`.

Texts are parsed from `-o` formats: the JSON of Slurm's commands differs between versions. An
"Invalid job id" is said right after `sbatch` and after the end alike, so `scontrol` is asked then.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..agent.bridge import NO_FOLDER_STATUS
from ..agent.config import Rules
from ..cluster.slurm import Slurm
from ..errors import TfmuxError
from ..printable import printable
from ..run.events import EngineWord
from .commands import Commands, Output
from .engine import (
    EngineError,
    EngineFinding,
    JobState,
    MissingProgramError,
    NoAnswerError,
    Subject,
    Verdict,
)
from .slurm_advice import (
    NO_COMMANDS,
    NO_COMMANDS_THERE,
    NO_FOLDER,
    NO_PYTHON,
    advice_on,
    advice_on_reason,
)
from .slurm_limits import CGROUP, Limits, check_time, limit_findings, limit_variables, parse_config
from .slurm_nodes import node_names
from .slurm_script import job_name, job_request

_SUBMIT_SECONDS = 60.0
_SECONDS = 20.0
_LIMIT_SECONDS = 5.0
"""For a question without whose answer sbatch is asked all the same."""
_JOB = re.compile(r"([0-9]{1,15})(?:;([\w.-]+))?")
_FIELD = re.compile(r"(?:^|\s)(JobState|Reason|NodeList|StartTime|Restarts|ExitCode)=(\S*)")
_GONE = ("nvalid job id", "already completing or completed")
"""What Slurm's commands say of a job or a step that has ended; their status is always 1."""
_WAITING = frozenset(
    "PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD SPECIAL_EXIT".split()
)
_AT_WORK = frozenset("RUNNING SUSPENDED RESIZING SIGNALING STAGE_OUT STOPPED".split())
_NO_PROGRAM = 127
_ADVICE = {"126:0": NO_PYTHON, "127:0": NO_PYTHON, f"{NO_FOLDER_STATUS}:0": NO_FOLDER}
"""By the exit code of the batch script: a shell whose command could not be started, an agent."""


class SlurmEngine:
    """Slurm, for one run; implements `engine.Engine`."""

    name = Slurm.label
    owns_job = True

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
            EngineError: with sbatch's words, or `time` is longer than the partition allows.
        """
        await self._check_time()
        try:
            output = await self._submit()
        except NoAnswerError as error:
            todo = f"should its job come after all: {self.cancel_command('')}"
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
            EngineError: it is, or Slurm did not say.
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
            await self._ask(*cancel, gone_is_fine=True)
        except TfmuxError as error:
            what = f"{what}; it could not be cancelled ({error}): {' '.join(cancel)}"
        raise EngineError(what, todo)

    async def find(self) -> str:
        """The newest job of this run's name.

        Raises:
            EngineError: Slurm did not answer.
        """
        name = job_name(self._run_id)
        output = await self._ask("squeue", "--me", "-h", "-n", name, "-o", "%i")
        jobs = [found[1] for line in output.splitlines() if (found := _JOB.fullmatch(line.strip()))]
        return max(jobs, key=int, default="")

    async def poll(self, job: str) -> JobState:
        """Asks for the state of the job.

        Raises:
            EngineError: Slurm did not answer.
        """
        asked = ("squeue", "-h", "-j", job, "-o", "%T|%r|%S|%N")
        line = (await self._ask(*asked, gone_is_fine=True)).strip().partition("\n")[0]
        if line.count("|") >= 3:
            state, reason, start, nodes = (word.strip() for word in line.split("|", 3))
            if state in _AT_WORK or state in _WAITING:
                return await self._job_state(state, reason, start, nodes)
        shown = await self._ask("scontrol", "-o", "show", "job", job, gone_is_fine=True)
        return await self._from_scontrol(dict(_FIELD.findall(shown)))

    async def _from_scontrol(self, said: Mapping[str, str]) -> JobState:
        """The state of a job that squeue has left out, or that is ending."""
        state, reason = said.get("JobState", ""), said.get("Reason", "")
        if not state:
            return JobState("GONE", "Slurm does not know the job any more", over=True)
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
            return JobState(state, reason, nodes=await self._expand(nodes))
        if state in _WAITING:
            advice = advice_on_reason(reason)
            return JobState(state, reason, expected=local_time(start), advice=advice)
        return JobState(state, reason, over=True)

    async def _expand(self, nodes: str) -> tuple[str, ...]:
        """The names in `sl[1-4]`.

        Raises:
            EngineError: they are not names.
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
            EngineError: Slurm did not answer, or refused.
        """
        await self._ask("scancel", job, gone_is_fine=True)

    def cancel_command(self, job: str) -> str:
        """By the job's id, else by its name."""
        return f"scancel {job or f'--me --name={job_name(self._run_id)}'}"

    async def words(self, job: str, nodes: Sequence[str]) -> dict[str, EngineWord]:
        """Slurm's word counts of a node that has left the job's list, that is up, and where
        Slurm knows of every process (by cgroups): it calls a job ended whose processes live on a
        node that is down.

        Raises:
            EngineError: Slurm did not answer.
        """
        held = await self._held(job, nodes)
        said = await self._ask("sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N|%T")
        states: dict[str, str] = {}
        for line in said.splitlines():
            name, _, word = line.strip().partition("|")
            states[name] = printable(word, 40)
        contains = (await self.limits()).contains
        return {node: _word(states.get(node, ""), node in held, contains) for node in nodes}

    async def _held(self, job: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes on which Slurm has not seen the end."""
        said = await self._ask("squeue", "-h", "-j", job, "-o", "%T|%N", gone_is_fine=True)
        state, _, listed = said.strip().partition("\n")[0].partition("|")
        held = await self._expand(listed.strip())
        return held if state in ("", "COMPLETING") else tuple(nodes)

    async def examine(self) -> AsyncIterator[EngineFinding]:
        """Lets sbatch test the request without submitting it, and reports the settings of Slurm
        that matter to a kill.

        Raises:
            EngineError: it would refuse it.
        """
        await self._check_time()
        output = await self._submit(test=True)
        if output.status != 0:
            raise _refusal(output)
        said = output.complaint or "sbatch accepts the request"
        yield EngineFinding(Verdict.PASSED, "", "accepted", said)
        async for finding in self._examine_limits():
            yield finding

    async def _examine_limits(self) -> AsyncIterator[EngineFinding]:
        text = "grace fits below KillWait, and Slurm tracks processes by cgroups"
        fine = EngineFinding(Verdict.PASSED, "", "fine", text, about=Subject.LIMITS)
        try:
            for finding in await self.cautions() or (fine,):
                yield finding
        except EngineError as error:
            yield EngineFinding(Verdict.WARNING, "slurm-silent", "no answer", str(error))

    async def cautions(self) -> tuple[EngineFinding, ...]:
        """Findings on settings of Slurm that spoil a kill.

        Raises:
            EngineError: Slurm did not answer.
        """
        return tuple(limit_findings(await self.limits(), self._rules.grace, self._secrets))

    async def limits(self) -> Limits:
        """Settings of Slurm that matter to a kill.

        Raises:
            EngineError: Slurm did not answer.
        """
        if self._limits is None:
            said = await self._ask("scontrol", "show", "config")
            self._limits = parse_config(said)
        return self._limits

    async def _check_time(self) -> None:
        """Raises `EngineError` when the job would wait for ever; Slurm's silence says nothing."""
        asked = ("sinfo", "-h", "-a", "-o", "%P|%l")
        with suppress(NoAnswerError, MissingProgramError):
            output = await self._commands.run(asked, timeout=_LIMIT_SECONDS)
            try:
                check_time(self._table, output.stdout if output.status == 0 else "")
            except EngineError:
                printenv = ("printenv", *limit_variables(self._table))
                if not (await self._commands.run(printenv, timeout=_LIMIT_SECONDS)).stdout.strip():
                    raise

    async def _submit(self, *, test: bool = False) -> Output:
        asked = job_request(self._table, self._run_id, self._rules)
        argv = (*asked.argv, "--test-only") if test else asked.argv
        try:
            return await self._commands.run(argv, asked.script, _SUBMIT_SECONDS)
        except MissingProgramError as error:
            raise MissingProgramError(error.what, NO_COMMANDS) from error

    async def _run(self, *argv: str) -> Output:
        return await self._commands.run(argv, timeout=_SECONDS)

    async def _ask(self, *argv: str, gone_is_fine: bool = False) -> str:
        """The output of a command; with `gone_is_fine` empty, where its job or step has ended.

        Raises:
            EngineError: Slurm did not answer, or refused.
        """
        output = await self._run(*argv)
        if output.status == 0:
            return output.stdout
        if gone_is_fine and any(words in output.stderr for words in _GONE):
            return ""
        raise output.failure(argv[0])


def _refusal(output: Output) -> EngineError:
    """Error of a request that sbatch has refused."""
    said = output.complaint or f"sbatch ended with {output.status} and said nothing"
    if output.status == _NO_PROGRAM:  # of a login shell; this machine's raise an error
        return MissingProgramError(said, NO_COMMANDS_THERE)
    return EngineError(said, advice_on(said))


def _word(state: str, held: bool, contains: bool) -> EngineWord:
    if not state:
        return EngineWord(False, "Slurm does not know the node")
    if "*" in state or state.lower().startswith(("down", "unk", "fail")):
        return EngineWord(False, f"Slurm cannot confirm it: the node is {state}")
    if held:
        return EngineWord(False, "Slurm has not seen the end there yet", final=False)
    if not contains:
        text = f"Slurm cannot confirm it: it does not track processes by {CGROUP}"
        return EngineWord(False, text)
    return EngineWord(True, "Slurm agrees")


def local_time(text: str) -> float | None:
    """Seconds since the epoch of `2026-11-22T18:40:00`; None where it is no time."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
