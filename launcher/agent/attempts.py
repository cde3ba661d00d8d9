"""Tasks of this host: starting their attempts, learning of their ends, and what is left of them.

The loop forks each task itself and is a child-subreaper: `waitpid` tells it of the end of a task's
first process, whatever a task leaves behind becomes its child, and by ECHILD the kernel says that
nothing at all is left. What may hang with a disk is done elsewhere: a thread opens the log, and the
new process itself enters the task's directory and finds its program.

States of an attempt:

    OPENING ── fork ─▶ FORKED ── exec ─▶ RUNNING ── waitpid ─▶ ENDED ── EXITED sent ─▶ REPORTED
       │                 │                                       │                        │
       │ refused         │ no such program                       │ output ends            │
       └─────────────────┴───────────────────────────────────────┴────────────────────────┴─▶ CLOSED
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import selectors
import signal
import termios
import threading
import time
from collections import deque
from contextlib import suppress
from enum import IntEnum
from typing import Iterator, Mapping, NamedTuple, Sequence

from . import ports, wire
from .channel import Channels
from .executables import DEFAULT_PATH, SHELL_FILE, ProgramProblem, bounded, start_problem
from .kernel_log import killed_for_memory
from .not_found import NOT_STARTED, missing_program
from .processes import (
    Ended,
    Killer,
    Process,
    ProcessTracker,
    check_for_task,
    close_others,
    command_lines,
    is_child,
    oom_kills,
    prefer_for_oom_killer,
    read_process,
    reap,
    restore_limit,
    seconds_since_boot,
    set_parent_death_signal,
    short_name,
    started_at,
)
from .signals import ASK_TO_END, restore_signals
from .task_logs import Log, TaskLogs
from .threads import Later, WorkerThread, error_text, full_disk, start_thread
from .wire import Json

_PIPE_BYTES = 256 * 1024
_DROPPED = ("TFMUX_AGENT", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY")
"""Variables that no task inherits. With the last three bash takes itself for a login over SSH, and
`bash -c` sources ~/.bashrc."""
_STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_HANDLED = (*_STOP_SIGNALS, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)
"""Signals whose handling by the agent, its interpreter, or who started it, must not reach a
task."""
_SHELL_FILE_BYTES = 1 << 17
_WAIT_FOR_OUTPUT = 1.0
_LEFT_SECONDS = 2.0
"""An end with status 0 is reported so much later at most, where the task's first process has left
others: many end by themselves a moment later, when a pipe of theirs is closed."""
_LOOK_AT_LEFT = 0.1
_OOM_SECONDS = 10.0
_KILLED_BELOW = 128 + signal.SIGKILL
"""Status of a shell whose program KILL has ended."""
_LISTENING_SECONDS = (0.03, 5.0)
_LISTENING_SHARE = 0.02
"""Pause between two looks for an attempt's port, as a share of the time that it has not listened
for already: a task that never listens costs hardly anything after a while."""
_MOST_ENDED = 5
"""Ended attempts of a task that are kept: a welcome, which is one message, has all of them, and a
task that is restarted for weeks has thousands."""
_FAULT_BYTES = 1000
_KILL_ROUND = 0.005
_BEING_ENDED = "the run is being ended"
_ENDED = "the run has been ended on this host"


class State(IntEnum):
    """State of an attempt (drawn above); each is later than those before it."""

    OPENING = 0
    """Its log is being opened. No process exists."""
    FORKED = 1
    """The process exists, and has not become the program yet."""
    RUNNING = 2
    """The process is the program, or was killed before it could be. The launcher has been told."""
    ENDED = 3
    """`waitpid` has told its end. Its last output may not be in the file yet."""
    REPORTED = 4
    """The launcher has been told the end. A grandchild may hold the output open."""
    CLOSED = 5
    """Nobody writes to the log for it any more; or it never ran (`error`)."""


class StopOrder(NamedTuple):
    """How a task is asked to end: by a signal to all its processes, or to the `first` alone while
    that lives; the end of the `leader` takes the task's terminal from the others. Both are pids of
    living processes."""

    number: int = signal.SIGTERM
    first: int = 0
    leader: int = 0


class Attempt:
    """One attempt of a task: its process while that lives, and how it ended afterwards."""

    def __init__(
        self, task: str, number: int, log: Log, port: int | None, *, gated: bool = False
    ) -> None:
        self.task = task
        self.number = number
        self.log = log
        self.port = port
        self.stop_first = False
        """Only its first process gets the stop signal while that lives."""
        self.stop_signal: int = signal.SIGTERM
        self.terminal = False
        """The program writes to a terminal."""
        self.state = State.OPENING
        self.gated = gated
        """The program starts only when the attempt is released."""
        self.gate = -1
        """Our end of the gate: a byte lets the program begin."""
        self.fault = -1
        """Says why the program could not be executed, or ends when it has been."""
        self.pid = 0
        self.start = 0
        self.began_at = log.size
        self.asked_at = time.monotonic()
        self.program_at = 0.0
        """When its program began, in seconds since boot."""
        self.ended_at = 0.0
        self.end_at = 0.0
        """When the program ended, in seconds since boot."""
        self.cpu = 0.0
        """Seconds of a processor that it used until its end, with all for which it had waited."""
        self.name = ""
        """Short name of the program that its process was when it ended."""
        self.kill_begun = False
        """A kill has begun: what it leaves is the kill's."""
        self.left: Json | None = None
        """The processes that it left when it ended with status 0: that live on, or fail at once."""
        self.seen_left: dict[int, tuple[str, str]] = {}
        """Short names and command lines of what it has left, by pid, as the last look saw them."""
        self.failed_left: list[Ended] = []
        """What it has left has failed since."""
        self.settled: threading.Event | None = None
        """Set when the end of its log that was kept apart stands in the log."""
        self.left_known = False
        """They have been looked for; else they are again at `next_look`."""
        self.next_look = 0.0
        self.port_owner: Json | None = None
        """Who listened on its port before it was started."""
        self.listening = False
        self.loopback = ""
        """The address where it listens, if that is this host's loopback alone."""
        self.error = ""
        self.problem: ProgramProblem | None = None
        """The program that could not be started, and why, as far as that was found."""
        self.looking = False
        """A thread looks for that program."""
        self.program: TaskProgram | None = None
        """Its program, until that has ended."""
        self.refused = False
        """Somebody has asked for it behind a kill that ends the run."""
        self.status: int | None = None
        self.signal: str | None = None
        self.out_of_memory = False
        """The kernel has killed it, or the program of its shell, for want of memory."""
        self.places: tuple[str, ...] = ()
        """Directories of which the disks may be full when it fails."""
        self.full: list[str] | None = None
        """The places whose disk was full when it had failed, and how; None: not looked for yet."""
        self.stopped_by = ""
        """Who had asked it to end before its end was seen (`wire.BY_AGENT` and so on)."""
        self.stopped_why = ""
        self.signalled = ("", 0.0)
        """The last signal to the job step that it got, and until when its end is an answer."""

    @classmethod
    def ended_before(cls, facts: Json, logs: TaskLogs) -> Attempt:
        """An attempt of an earlier agent, from the facts that this one has left of it."""
        log = logs.log(facts["task"], 1 << 62)
        log.size = max(log.size, facts["size"])
        attempt = cls(facts["task"], facts["attempt"], log, None)
        attempt.state = State.CLOSED
        attempt.pid, attempt.began_at = facts["pid"], facts["began_at"]
        attempt.error, attempt.refused = facts["error"], bool(facts.get("refused"))
        attempt.problem = _problem_of(facts.get("problem"))
        attempt.status, attempt.signal = facts.get("status"), facts.get("signal")
        attempt.out_of_memory = facts.get("out_of_memory", False)
        attempt.stopped_by = facts.get("stopped_by", "")
        attempt.stopped_why = facts.get("stopped_why", "")
        attempt.full = list(facts.get("full", ()))
        attempt.left = facts.get("left")
        return attempt

    @property
    def announced(self) -> bool:
        """The launcher has been told that it runs, or why not."""
        return self.state >= State.RUNNING

    @property
    def ended(self) -> bool:
        """Its first process has ended, or there was none."""
        return self.state >= State.ENDED

    def end(self, ended: Ended) -> None:
        """Records how the process ended."""
        self.state = State.ENDED
        self.ended_at, self.end_at = time.monotonic(), seconds_since_boot()
        self.cpu, self.name = ended.cpu, ended.name
        name, until = self.signalled
        if not self.stopped_by and self.ended_at < until:
            self.stopped_by, self.stopped_why = wire.BY_SIGNAL, f"its job step had received {name}"
        if os.WIFSIGNALED(ended.status):
            self.signal = signal_name(os.WTERMSIG(ended.status))
        else:
            self.status = os.WEXITSTATUS(ended.status)

    def open_gate(self) -> None:
        """Lets the program begin."""
        self.gated = False
        if self.gate >= 0:
            self.program_at = seconds_since_boot()
            with suppress(OSError):  # the task has just ended
                os.write(self.gate, b"\n")
            self.close_gate()

    def close_gate(self) -> None:
        """Lets go of the gate."""
        if self.gate >= 0:
            os.close(self.gate)
            self.gate = -1

    def facts(self, port_owner: Json | None = None) -> Json:
        """What a launcher is told of it."""
        return {
            "task": self.task,
            "attempt": self.number,
            "pid": self.pid,
            "error": self.error,
            "problem": self.problem and self.problem._asdict(),
            "ended": self.ended,
            "status": self.status,
            "signal": self.signal,
            "ended_ago": time.monotonic() - self.ended_at if self.ended_at else None,
            "out_of_memory": self.out_of_memory,
            "full": (self.full or ())[: wire.MOST_FULL],
            "stopped_by": self.stopped_by if self.ended else "",
            "stopped_why": self.stopped_why if self.ended else "",
            "listening": self.listening,
            "loopback": self.loopback if self.listening else "",
            "size": self.log.size,
            "began_at": self.began_at,
            "eof": self.state is State.CLOSED,
            "lost": self.log.lost,
            "cut": self.log.cut,
            "port_owner": port_owner,
            "gated": self.gated,
            "left": self.left,
            "refused": self.refused,
        }


class TaskProgram(NamedTuple):
    """Program of a task: words, variables, directory, and how it starts."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    terminal: bool
    umask: int
    gated: bool = False
    logdir: str = ""
    """A directory that is made before it; empty where none is."""
    shell_words: int = 0
    """The number of words that are our shells in front of the task's own."""

    def not_found(self) -> ProgramProblem | None:
        """The program that it, or a shell of it, has not been able to start. Reads files, which
        may hang."""
        path, cwd = self.env.get("PATH", DEFAULT_PATH), self.cwd
        if self.shell_words:
            try:
                with open(self.env[SHELL_FILE], errors="surrogateescape") as file:
                    cwd, _, path = file.read(_SHELL_FILE_BYTES).partition("\0")
            except (KeyError, OSError):  # `setup` has failed
                return None
        return bounded(missing_program(self.argv[self.shell_words :], path, cwd))

    def execute(self, output: int, fault: int, parent: int, gate: int) -> None:
        """Becomes the program, in a process that has just been forked by `parent`. Never returns;
        why it failed goes to `fault`, which a successful exec closes. Its input is the `gate`,
        where it is `gated`.

        Stop signals wait meanwhile (`_fork`): the agent's handlers, which this process has still,
        would take them for the agent's.
        """
        what = self.argv[0] if self.argv else ""
        entered = False
        try:
            signal.set_wakeup_fd(-1)
            set_parent_death_signal(signal.SIGKILL)
            if os.getppid() != parent:  # it died before the line above
                os._exit(127)
            # The directory may hang: copies of the agent's sockets and pipes would hide its end
            # from whoever waits for it.
            close_others((0, 1, 2, output, fault, gate))
            os.setsid()
            if self.terminal:
                fcntl.ioctl(output, termios.TIOCSCTTY, 0)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            restore_signals(_STOP_SIGNALS)
            restore_limit()
            prefer_for_oom_killer()
            os.umask(self.umask)
            null = gate if self.gated else os.open("/dev/null", os.O_RDONLY)
            os.dup2(output if self.terminal else null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if self.logdir:
                with suppress(OSError):  # a task that writes nothing there does not need it
                    os.makedirs(self.logdir, exist_ok=True)
            what = self.cwd
            os.chdir(self.cwd)
            what, entered = self.argv[0], True
            os.execvpe(self.argv[0], list(self.argv), dict(self.env))
        except OSError as error:
            problem = None
            with suppress(Exception):  # the kernel's own word is there in any case
                problem = start_problem(error, self.argv, self.env, self.cwd, entered=entered)
            os.write(fault, json.dumps([error.errno, what[:_FAULT_BYTES], problem]).encode())
        except (ValueError, IndexError, TypeError) as error:  # a zero byte in an argument
            os.write(fault, json.dumps([0, f"{what[:_FAULT_BYTES]}: {error}", None]).encode())
        finally:
            os._exit(127)


class Attempts:
    """All attempts that this host knows of. Tasks get the `umask` of the login."""

    def __init__(
        self,
        known: list[Attempt],
        selector: selectors.BaseSelector,
        channels: Channels,
        logs: TaskLogs,
        tracker: ProcessTracker,
        later: Later,
        disk: WorkerThread,
        umask: int,
    ) -> None:
        self.all = known
        self.none_left = True
        """The kernel has said (ECHILD) that nothing is left of what was started here."""
        self.over = False
        """The run ends: nothing is started any more, whoever asks."""
        self._selector = selector
        self._channels = channels
        self._logs = logs
        self._tracker = tracker
        self._later = later
        self._disk = disk
        self._umask = umask
        self._killer: Killer | None = None
        self._scanned_at = 0.0
        self._oom_kills: deque[tuple[float, int]] = deque()
        """The kernel's count of processes that it has killed for want of memory, as it was at times
        of the last seconds: whose memory is much takes long to end."""
        self._me, self._session = os.getpid(), os.getsid(0)

    def __bool__(self) -> bool:
        return bool(self.all)

    # --- starting -------------------------------------------------------------------------

    def start(self, wanted: Json, *, killed: bool, ending: str) -> None:
        """Starts an attempt, unless its task is being `killed`, or the agent is `ending`, for which
        it says why; the launcher is told the result when it is known."""
        task, number, gated = str(wanted["task"]), int(wanted["attempt"]), bool(wanted.get("gated"))
        for attempt in self.all:
            if attempt.task == task and attempt.number == number:  # asked again after a cut
                if attempt.announced:
                    self._channels.send(wire.STARTED, attempt.facts())
                if not (gated or self.over):
                    attempt.open_gate()
                return
        env = {**os.environ, **wanted["env"]}
        for name in _DROPPED:
            env.pop(name, None)
        pty = bool(wanted.get("pty"))
        logdir = wanted.get("logdir") or ""
        shell_words = int(wanted.get("shell_words", 0))
        if shell_words:
            env[SHELL_FILE] = self._logs.shell_file(task)
        program = TaskProgram(
            list(wanted["argv"]), env, wanted["cwd"], pty, self._umask, gated, logdir, shell_words
        )
        if pty and gated:
            raise ValueError("a terminal has no gate")
        port = int(wanted["port"]) if wanted.get("port") else None
        stop_first = wanted.get("stop") == "first"
        stop_signal = signal.Signals["SIG" + wanted.get("stop_signal", "TERM")]
        log = self._logs.log(task, int(wanted["log_limit"]))
        attempt = Attempt(task, number, log, port, gated=gated)
        attempt.stop_first, attempt.stop_signal, attempt.terminal = stop_first, stop_signal, pty
        attempt.places = tuple(dict.fromkeys(_places(program, log)))
        self._forget_closed(task)
        self.all.append(attempt)
        if killed or ending or self.over:
            if ending:
                attempt.stopped_by, attempt.stopped_why = wire.BY_AGENT, ending
            self._refuse_for_end(attempt)
            return
        try:
            check_for_task(sum(one.state is not State.CLOSED for one in self.all))
        except OSError as error:
            self._refuse(attempt, error_text(error))
            return
        self._disk.do(lambda: self._open(attempt, program))

    def _forget_closed(self, task: str) -> None:
        """Forgets all but the last few attempts of a task that are over."""
        closed = [attempt for attempt in self._of({task}) if attempt.state is State.CLOSED]
        for attempt in closed[:-_MOST_ENDED]:
            self.all.remove(attempt)

    def release(self, wanted: Json) -> None:
        """Lets a gated attempt begin; a second time changes nothing. Where the run ends its program
        does not begin any more."""
        for attempt in () if self.over else self._of({wanted["task"]}):
            if attempt.number == wanted["attempt"]:
                attempt.open_gate()

    def cancel_starts(self, tasks: set[str] | None) -> None:
        """Starts none of these that has no process yet: a kill of them begins."""
        for attempt in self._of(tasks):
            attempt.kill_begun = True
            if attempt.state is State.OPENING:
                self._refuse_for_end(attempt)

    def _open(self, attempt: Attempt, program: TaskProgram) -> None:
        """In the thread: the log, which may hang with its disk, and who holds its port, which is
        looked for in the descriptors of all processes."""
        try:
            self._logs.begin(attempt.log, attempt.task)
            if program.shell_words:
                self._logs.make_shell_folder()
            attempt.port_owner = ports.owner(attempt.port) if attempt.port else None
        except Exception as error:  # whatever it is, the start has an answer
            attempt.log.close()
            text = error_text(error)
            self._later(lambda: self._cannot_start(attempt, text))
        else:
            self._later(lambda: self._fork(attempt, program))

    def _cannot_start(self, attempt: Attempt, error: str) -> None:
        if attempt.state is State.OPENING:
            self._refuse(attempt, error)

    def _fork(self, attempt: Attempt, program: TaskProgram) -> None:
        if attempt.state is not State.OPENING:  # a kill has come meanwhile
            self._disk.do(attempt.log.close)
            return
        attempt.began_at = attempt.log.size
        opened: list[int] = []
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            output, its_output = _open_output(program.terminal, opened)
            fault, its_fault = _open_pipe(opened)
            its_gate, gate = _open_pipe(opened) if program.gated else (-1, -1)
            pid = os.fork()
            if pid == 0:
                program.execute(its_output, its_fault, self._me, its_gate)
        except OSError as error:  # such as too many processes
            for fd in opened:
                os.close(fd)
            self._disk.do(attempt.log.close)
            self._refuse(attempt, error_text(error))
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        for fd in (its_output, its_fault, its_gate):
            if fd >= 0:
                os.close(fd)
        attempt.state, attempt.pid, attempt.start = State.FORKED, pid, _start_of(pid)
        attempt.program_at = seconds_since_boot()
        attempt.fault, attempt.gate = fault, gate
        kept = {name: program.env[name] for name in ("PATH", SHELL_FILE) if name in program.env}
        attempt.program = program._replace(env=kept)
        self.none_left = False
        self._tracker.roots[(pid, attempt.start)] = attempt.task
        self._selector.register(fault, selectors.EVENT_READ, attempt)
        self._logs.drain.add(output, attempt.log)
        if gate >= 0 and not attempt.gated:  # it was released meanwhile
            attempt.open_gate()

    def executed(self, attempt: Attempt) -> None:
        """The process has become its program, or says why it could not, or was killed before."""
        fault, attempt.fault = attempt.fault, -1
        self._selector.unregister(fault)
        said = os.read(fault, 1 << 16)
        os.close(fault)
        if said:
            error, attempt.problem = _start_error(said)
            self._refuse(attempt, error_text(error))
        else:
            attempt.state = State.RUNNING
            self._announce(attempt)

    def _refuse_for_end(self, attempt: Attempt) -> None:
        attempt.refused = self.over
        self._refuse(attempt, _ENDED if self.over else _BEING_ENDED)

    def _refuse(self, attempt: Attempt, error: str) -> None:
        attempt.state, attempt.error = State.CLOSED, error
        attempt.close_gate()
        self._announce(attempt)

    def _announce(self, attempt: Attempt) -> None:
        self._channels.send(wire.STARTED, attempt.facts(attempt.port_owner))

    # --- ends -----------------------------------------------------------------------------

    def poll(self) -> None:
        """Reaps the tasks and what they have left behind, and reports ends."""
        self._count_oom_kills()
        self._reap()
        self._send_ends()

    def _count_oom_kills(self) -> None:
        """Notes, once a second, how many processes the kernel has killed for want of memory."""
        now, counts = time.monotonic(), self._oom_kills
        if counts and now - counts[-1][0] < 1.0:
            return
        counts.append((now, oom_kills()))
        while len(counts) > 1 and now - counts[1][0] > _OOM_SECONDS:
            counts.popleft()

    def _reap(self) -> bool:
        """Reaps what has ended; whether there was anything."""
        look = any(a.pid and not a.left_known and not a.kill_begun for a in self.all)
        reaped, self.none_left = reap(look=look)
        if self._killer is not None and not self.none_left:
            reaped += self._kill_children(reaped)
        ended = {each.pid: each for each in reaped}
        for attempt in self.all if ended else ():
            if attempt.pid in ended and not attempt.ended:
                if attempt.fault >= 0:
                    self.executed(attempt)
                if not attempt.ended:
                    attempt.end(ended[attempt.pid])
                    attempt.out_of_memory = self._had_no_memory(attempt)
                    self._look_for_program(attempt)
                    self._look_for_full_disks(attempt)
                attempt.close_gate()
        for each in reaped:
            if each.status and each.process is not None:
                self._find_failed(each, each.process)
        return bool(reaped)

    def _look_for_program(self, attempt: Attempt) -> None:
        """Has a thread find out what a shell could not start: the disk may hang."""
        program, attempt.program = attempt.program, None
        asked_to_end = attempt.stopped_by or attempt.kill_begun
        if program is None or asked_to_end or attempt.status not in NOT_STARTED:
            return

        def look() -> None:
            problem = None
            with suppress(Exception):  # the end is reported in any case
                problem = program.not_found()
            self._later(lambda: self._found(attempt, problem))

        attempt.looking = True
        try:
            start_thread(look, "program")
        except OSError:
            attempt.looking = False

    def _found(self, attempt: Attempt, problem: ProgramProblem | None) -> None:
        attempt.problem, attempt.looking = problem, False

    def _look_for_full_disks(self, attempt: Attempt) -> None:
        """Has the thread look whether a disk is full, where the attempt has failed by itself."""
        if attempt.status == 0 or attempt.stopped_by or attempt.kill_begun:
            attempt.full = []
        else:
            self._disk.do(lambda: setattr(attempt, "full", full_places(attempt.places)))

    def _had_no_memory(self, attempt: Attempt) -> bool:
        """The kernel has killed the task for want of memory, or the program of its shell: its log
        says so, or its count of such kills has just grown."""
        killed = attempt.signal == "KILL"
        if attempt.stopped_by or not (killed or attempt.status == _KILLED_BELOW):
            return False
        victims = killed_for_memory()
        known = self._tracker.known_processes.items()
        its = {pid for (pid, _), task in known if task == attempt.task} | {attempt.pid}
        if not victims.isdisjoint(its):
            return True
        return killed and bool(self._oom_kills) and oom_kills() > self._oom_kills[0][1]

    def _find_failed(self, orphan: Ended, process: Process) -> None:
        """Finds the task whose first process has left this one, which has failed."""
        if process.sid == self._session or any(each.pid == orphan.pid for each in self.all):
            return  # none that a task has started
        known = self._tracker.known_processes.get((process.pid, process.start), "")
        for attempt in self.all:
            if attempt.state is not State.ENDED or attempt.status != 0:
                continue
            if attempt.left_known or attempt.kill_begun:
                continue
            its = process.sid == attempt.pid or known == attempt.task
            its = its or orphan.pid in attempt.seen_left
            if its or (not known and self._unnamed(attempt, [process])):
                attempt.failed_left.append(orphan)

    def _kill_children(self, reaped: list[Ended]) -> list[Ended]:
        """Kills what is a child now; returns what has ended meanwhile. A chain of forks makes the
        next child within less time than a turn of the loop takes, so it is followed for a while."""
        assert self._killer is not None
        found: list[Ended] = []
        until = time.monotonic() + _KILL_ROUND
        while True:
            self._killer.step(reaped)
            reaped, self.none_left = reap()
            found += reaped
            if self.none_left or not reaped or time.monotonic() >= until:
                return found

    @property
    def unreported(self) -> bool:
        """An attempt has ended, and the launcher has not been told."""
        return any(attempt.state is State.ENDED for attempt in self.all)

    def _send_ends(self) -> None:
        """An end is reported when the task's own output is in its file: the last lines before an
        exit are the ones that matter. A grandchild that holds the pipe delays it no longer
        than a second, what a success has left no longer than two."""
        drain = self._logs.drain
        self._look_at_left()
        for attempt in self.all:
            if attempt.state not in (State.ENDED, State.REPORTED):
                continue
            closed = not drain.draining(attempt.log)
            late = time.monotonic() - attempt.ended_at > _WAIT_FOR_OUTPUT
            told = closed or late or drain.idle(attempt.log)
            told = told and (late or not attempt.looking)
            told = told and (attempt.full is not None or late)
            if told and not closed:  # a grandchild holds the pipe
                attempt.settled = attempt.settled or drain.settle(attempt.log)
                told = attempt.settled.is_set()
            if attempt.state is State.ENDED and told and attempt.left_known:
                attempt.state = State.CLOSED if closed else State.REPORTED
                self._channels.send(wire.EXITED, attempt.facts(_port_owner(attempt)))
            if closed and attempt.state is not State.ENDED:
                attempt.state = State.CLOSED
                self._channels.send(wire.EOF, attempt.facts())

    def _look_at_left(self) -> None:
        """Finds what the tasks that have just ended with status 0 have left, unless that ends by
        itself within a moment, and well."""
        now = time.monotonic()
        due = [a for a in self.all if a.state is State.ENDED and not a.left_known]
        due = [a for a in due if a.kill_begun or now >= a.next_look]
        if not due:
            return
        left: dict[str, list[Process]] = {}
        again = False
        if not self.none_left and any(a.status == 0 and not a.kill_begun for a in due):
            with suppress(OSError):  # no descriptor is left: it is not known
                for process, task in self._tracker.scan().values():
                    left.setdefault(task, []).append(process)
            # What has ended meanwhile may have started another, which the look has missed.
            again = self._reap() and not self.none_left
        for attempt in due:
            found = [*left.get(attempt.task, ()), *self._unnamed(attempt, left.get("", ()))]
            found = _busiest(found)
            done = attempt.status != 0 or attempt.kill_begun or not (found or again)
            if not done and now - attempt.ended_at < _LEFT_SECONDS:
                attempt.next_look = now + _LOOK_AT_LEFT
                _remember(attempt, found[: wire.MOST_LEFT])
                continue
            attempt.left_known = True
            if attempt.status == 0 and not attempt.kill_begun and (found or attempt.failed_left):
                attempt.left = _left(attempt, found)

    def _unnamed(self, attempt: Attempt, unnamed: Sequence[Process]) -> list[Process]:
        """Processes that only this attempt can have started, among those of no known task (their
        environment is empty, and their birth was not seen)."""
        found = []
        for process in unnamed:
            began = started_at(process) + 0.01
            able = [
                each
                for each in self.all
                if each.program_at and each.program_at <= began
                if not each.end_at or each.end_at >= began - 0.02
            ]
            if able == [attempt]:
                found.append(process)
        return found

    def _not_listening(self) -> list[Attempt]:
        """Living attempts that are to listen on a port, and do not do so yet."""
        return [a for a in self.all if a.port and not a.ended and not a.listening and not a.gated]

    @property
    def next_scan(self) -> float:
        """Time of the next scan of the listening ports; infinite while no task is to listen."""
        waiting = self._not_listening()
        if not waiting:
            return math.inf
        least, most = _LISTENING_SECONDS
        waited = self._scanned_at - max(attempt.asked_at for attempt in waiting)
        return self._scanned_at + min(most, max(least, _LISTENING_SHARE * waited))

    def find_listeners(self) -> None:
        """Tells the launcher of those that listen by now."""
        self._scanned_at = time.monotonic()
        waiting = self._not_listening()
        sockets = ports.listeners()
        heard = [(attempt, sockets[attempt.port]) for attempt in waiting if attempt.port in sockets]
        try:
            members = self._tracker.scan() if heard else {}
        except OSError:  # no descriptor is left; the next time there may be one
            return
        for attempt, its in heard:
            pids = [pid for pid, (_, who) in members.items() if who == attempt.task]
            addresses = [address for _, address in ports.held(pids, its)]
            if not addresses:
                continue
            loopback, attempt.loopback = attempt.loopback, ports.loopback(addresses)
            if loopback or not attempt.loopback:  # else another address may follow in a moment
                attempt.listening = True
                self._channels.send(wire.LISTENING, attempt.facts())

    # --- kills ----------------------------------------------------------------------------

    def stops(self) -> dict[str, StopOrder]:
        """How each task is asked to end, by the last of its attempts that had a process."""
        found = {}
        for attempt in self.all:
            if attempt.pid:
                living = 0 if attempt.ended else attempt.pid
                first, leader = attempt.stop_first and living, attempt.terminal and living
                found[attempt.task] = StopOrder(attempt.stop_signal, first, leader)
        return found

    def terminals(self) -> dict[str, bool]:
        """The tasks whose programs have a terminal, and whether it hides what would be typed."""
        running = [one for one in self.all if one.terminal and one.state is State.RUNNING]
        return {one.task: self._logs.drain.hides_input(one.log) for one in running}

    def pass_on(self, number: int, grace: float) -> int:
        """Sends a signal to the first process of each task that runs; returns to how many. What
        ends within the grace may have done so in answer to it."""
        count = 0
        for attempt in self.all:
            if attempt.state is State.RUNNING and not attempt.gated and is_child(attempt.pid):
                if number in ASK_TO_END:
                    attempt.signalled = f"SIG{signal_name(number)}", time.monotonic() + grace
                with suppress(OSError):  # it has become another user's
                    os.kill(attempt.pid, number)
                    count += 1
        return count

    def ask_to_end(self, tasks: set[str] | None, by: str, why: str) -> None:
        """Records who ends those of these that have not been seen to end; who came first stays."""
        for attempt in self._of(tasks):
            if not attempt.ended and not attempt.stopped_by:
                attempt.stopped_by, attempt.stopped_why = by, why

    def kill(self, tasks: set[str] | None) -> None:
        """Kills the first processes of these tasks and their groups, which takes no look and no
        descriptor; of everything, also each child that is ours or becomes so."""
        for attempt in self._of(tasks):
            if attempt.pid and not attempt.ended and is_child(attempt.pid):
                with suppress(OSError):  # it has not got its own group yet
                    os.killpg(attempt.pid, signal.SIGKILL)
                with suppress(OSError):  # it has become another user's
                    os.kill(attempt.pid, signal.SIGKILL)
        if tasks is None and self._killer is None:
            self._killer = Killer()

    def knows(self, task: str, number: int) -> bool:
        """Whether an attempt was started here, or by an agent that has written down its end."""
        return any(attempt.number == number for attempt in self._of({task}))

    def kills_ended(self) -> None:
        """No kill is under way any more."""
        self._killer = None

    def gone(self, tasks: set[str] | None) -> bool:
        """Whether the processes have ended: of the whole run by the kernel's word (ECHILD), of some
        tasks only their first processes; of the rest only a look can tell."""
        if tasks is None:
            return self.none_left
        return all(attempt.ended for attempt in self._of(tasks))

    def _of(self, tasks: set[str] | None) -> list[Attempt]:
        return [attempt for attempt in self.all if tasks is None or attempt.task in tasks]


def _places(program: TaskProgram, log: Log) -> Iterator[str]:
    """Directories in which programs write without being told, or are told to by the run."""
    yield program.cwd
    if program.logdir:
        yield program.logdir
    yield os.path.dirname(log.path)
    for name, instead in (("TMPDIR", "/tmp"), ("HOME", "/")):
        yield program.env.get(name) or instead
    yield "/dev/shm"


def full_places(places: Sequence[str]) -> list[str]:
    """Finds directories whose disks are full, and how; one for each disk. May hang."""
    found, seen = [], set()
    for path in places:
        with suppress(OSError):
            device = os.stat(path).st_dev
            if device not in seen and (how := full_disk(path)):
                found.append(f"{path}: {how}")
            seen.add(device)
    return found


def signal_name(number: int) -> str:
    """`TERM` for 15; the number itself where it has no name."""
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def _busiest(processes: list[Process]) -> list[Process]:
    return sorted(processes, key=lambda process: process.ticks, reverse=True)


def _remember(attempt: Attempt, living: list[Process]) -> None:
    """Remembers the command lines of processes that it has left: nothing tells them when they have
    ended. Each is read again only when it has become another program: reading may hang."""
    names = {process.pid: short_name(process.pid) for process in living}
    known = attempt.seen_left
    new = [p for p in living if p.pid not in known or known[p.pid][0] != names[p.pid]]
    for process, command in zip(new, command_lines(new)):
        known[process.pid] = names[process.pid], command


def _left(attempt: Attempt, living: list[Process]) -> Json:
    """The facts of an end that has left processes. Of each process its `age` when the first one
    ended, so that one can tell what was there from the beginning."""
    listed = living[: wire.MOST_LEFT]
    processes = [
        {"command": command, "cpu": round(process.cpu, 2), **_age(attempt, process)}
        for process, command in zip(listed, command_lines(listed))
    ]
    failed = attempt.failed_left[: wire.MOST_LEFT - len(listed)]
    processes += [_failed(attempt, each) for each in failed]
    return {
        "processes": processes,
        "unlisted": len(living) + len(attempt.failed_left) - len(processes),
        "seconds": round(max(0.0, attempt.end_at - attempt.program_at), 2),
        "cpu": round(attempt.cpu, 4),
    }


def _failed(attempt: Attempt, orphan: Ended) -> Json:
    """The facts of a process that was left, and has failed since."""
    assert orphan.process is not None
    name, seen = attempt.seen_left.get(orphan.pid, ("", ""))
    if os.WIFSIGNALED(orphan.status):
        end: Json = {"signal": signal_name(os.WTERMSIG(orphan.status))}
    else:
        end = {"exit_code": os.WEXITSTATUS(orphan.status)}
    return {
        "command": seen if name == orphan.name else orphan.name[1:-1],
        "cpu": round(orphan.cpu, 4),
        "forked": orphan.name == attempt.name,
        **_age(attempt, orphan.process),
        **end,
    }


def _age(attempt: Attempt, process: Process) -> Json:
    age = round(max(0.0, attempt.end_at - started_at(process)), 2)
    return {"pid": process.pid, "age": age}


def _port_owner(attempt: Attempt) -> Json | None:
    """Who holds the port of a task that has ended without listening. It is looked for in the
    descriptors of all processes only where nobody held it at the start."""
    if not attempt.port or attempt.listening or not ports.listeners().get(attempt.port):
        return None
    return attempt.port_owner or ports.owner(attempt.port)


def _start_of(pid: int) -> int:
    try:
        process = read_process(pid)
    except OSError:  # no descriptor is left on the whole machine
        return 0
    return process.start if process else 0


def _open_pipe(opened: list[int]) -> tuple[int, int]:
    pair = os.pipe()
    opened += pair
    return pair


def _open_output(terminal: bool, opened: list[int]) -> tuple[int, int]:
    """Our end and the task's end of its output: a terminal or a large pipe."""
    if terminal:
        pair = pty.openpty()
        opened += pair
        fcntl.ioctl(pair[0], termios.TIOCSWINSZ, b"\x32\0\xc8\0\0\0\0\0")  # 50 rows, 200 columns
        return pair
    pair = _open_pipe(opened)
    with suppress(OSError):  # the user's pipe quota is used up: the default size is only slower
        fcntl.fcntl(pair[0], 1031, _PIPE_BYTES)  # F_SETPIPE_SZ
    return pair


def _start_error(said: bytes) -> tuple[OSError, ProgramProblem | None]:
    """Reason for which a program could not be started, from the output of `execute`: the kernel's
    word, and what was found."""
    try:
        number, what, found = json.loads(said)
        problem = None if found is None else ProgramProblem(*found)
    except (ValueError, TypeError):  # it was ended while it spoke
        return OSError("it was not started"), None
    if not number:
        return OSError(what), None
    return OSError(number, os.strerror(number), what or None), problem


def _problem_of(facts: object) -> ProgramProblem | None:
    """A problem from the facts that an earlier agent has left."""
    try:
        return ProgramProblem(**facts) if isinstance(facts, dict) else None
    except TypeError:
        return None
