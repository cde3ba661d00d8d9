"""Loop of the agent: input, kills, lease, logs — in this order.

One thread and one selector for all that beats, kills and reaps. Nothing in here waits: a kill is a
state, and whatever touches a disk (which may hang for minutes) is done by threads: draining task
output, reading logs, opening them, staged files, the state, `agent.log`.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable

from . import ports, proc, requests, state, stats, wire
from .channel import Channel
from .channels import Channels
from .config import AgentConfig
from .folders import Folders
from .kills import Kills
from .log import error_text, log_line, write_in_background
from .messages import AgentExit, ExitReason, Gone, Note, Pong, PortsAnswer, TaskFacts, Welcome
from .process_tracker import ProcessTracker
from .task_logs import TaskLogs
from .tasks import Attempt, Attempts, State
from .workers import Wakeups, WorkerThread

_KNOWN_PROCESSES = 1.0
_BEAT_WATCHDOG = 1.0
_LOOK_AGAIN = 0.04
_LOOK_AT_OUTPUT = 0.005
_WAIT_FOR_OUTPUT = 1.0
_MOST_QUEUED = 4096
"""Answers that wait for a launcher; each is some hundred bytes."""
_WAIT_FOR_DISK = 5.0
_TOUCH_SOCKET = 3600.0
_IDLE = 5.0
"""Seconds after which an agent goes that has no launcher and nothing of the run: no file, no task.
One that an engine has started waits for its lease."""


class Agent:
    """Owner of a run's tasks on one host until nothing of them is left.

    `config` is what the launcher's bootstrap sent, `umask` that of the login; `watchdog` is a
    pipe to the watchdog. `certain`: nothing of an earlier agent's can live (`Folders.begin`).
    """

    def __init__(
        self,
        config: AgentConfig,
        umask: int,
        folders: Folders,
        listeners: list[socket.socket],
        watchdog: int,
        *,
        certain: bool,
    ) -> None:
        self._certain = certain
        self._rules = config.rules
        self._local = config.local
        self._by_engine = config.by_engine
        self._folders = folders
        self._listeners = listeners
        self._watchdog = watchdog
        self._umask = umask
        self._tracker = ProcessTracker(config.run_id, agent_session=os.getsid(0))
        known, self._previous_exit = state.load(folders, self._tracker)
        self._picker = ports.Picker(os.path.join(folders.local, "ports"))
        self._stats = stats.StatsSampler()
        self._selector = selectors.DefaultSelector()
        self._wakeups = Wakeups()
        self._channels = Channels(
            self._selector,
            self._handle,
            self._launcher_died,
            self._wakeups.do_later,
        )
        self._staged: bool | None = None
        self._writer = WorkerThread("state writer")
        self._unsaved: deque[state.SavedState] = deque(maxlen=1)
        self._logs = TaskLogs(
            folders,
            self._channels,
            {attempt.task: attempt.log for attempt in known},
            self._wakeups.wake,
            local=config.local,
        )
        self._attempts = Attempts(
            known,
            self._selector,
            self._channels,
            self._logs,
            self._tracker,
            self._wakeups.do_later,
            self._save,
        )
        self._kills = Kills(self._tracker, self._attempts, self._channels, certain=certain)
        self._handlers: dict[type, Callable[[Channel, Any], None]] = {
            requests.Hello: self._hello,
            requests.Beat: lambda channel, _: channel.send(Pong()),
            requests.ShareText: self._share_text,
            requests.Start: self._start,
            requests.Release: lambda _, wanted: self._attempts.release(wanted),
            requests.Kill: lambda _, wanted: self._kills.request(wanted),
            requests.Leave: self._leave,
            requests.ReadLog: self._logs.open,
            requests.Credit: lambda channel, granted: channel.allow(granted.up_to),
            requests.Ports: self._ports,
            requests.Stats: self._answer_stats,
        }
        self._woken = 0.0
        names = ("processes", "watchdog", "touch")
        self._next = dict.fromkeys(names, 0.0)
        self._saved_processes: set[proc.Key] = set()
        self._ending: AgentExit | None = None
        self._ending_since = 0.0
        self._remove = False
        self._term = False
        self._unguarded = False

    # --- the loop -------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until the run is over here."""
        signal.set_wakeup_fd(self._wakeups.write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(self._wakeups.read_fd, selectors.EVENT_READ, None)
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, None)
        write_in_background()
        self._logs.drain.start()
        sys.setswitchinterval(0.0005)  # the drain must not wait 5 ms for its turn
        while not self._over():
            self._turn()
        self._channels.listen()
        for listener in self._listeners:
            self._selector.unregister(listener)
            # Refuses bridges, and keeps the address: the next agent begins when this one has gone.
            listener.shutdown(socket.SHUT_RDWR)
        # Survivors that a receipt has named are known to the next agent, by the saved state.
        proven = self._certain and not self._kills.doubted
        done = self._writer.do(
            lambda: self._clean_up(proven)
        )  # after the states that wait to be written
        until = time.monotonic() + _WAIT_FOR_DISK
        while not done.wait(_LOOK_AT_OUTPUT) and time.monotonic() < until:
            self._channels.write()  # nothing is read any more: who comes now gets the next agent
        self._channels.close()
        self._beat_watchdog(b"Q")
        self._end_stopped_watchdog()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj in self._listeners:
                self._channels.accept(key.fileobj)
            elif key.fd == self._wakeups.read_fd:
                self._woken = time.monotonic()
                self._wakeups.drain()
            elif isinstance(key.data, socket.socket):
                self._channels.open(key.data)
            elif isinstance(key.data, Attempt):
                self._attempts.executed(key.data)
        self._channels.read()
        for work in self._wakeups.pop_results():
            work()
        self._attempts.poll()
        self._kills.step()
        now = time.monotonic()
        if now >= self._attempts.next_scan:
            self._attempts.find_listeners()
        if self._due("processes", now, _KNOWN_PROCESSES):
            self._scan_processes()
            self._channels.listen()
        if self._due("watchdog", now, _BEAT_WATCHDOG):
            self._beat_watchdog(b"b")
        self._check_lease(now)
        if self._due("touch", now, _TOUCH_SOCKET):
            self._writer.do(self._folders.touch)
        self._logs.send_sizes(now)
        self._logs.send_losses()
        self._channels.write()

    def _patience(self) -> float:
        now = time.monotonic()
        waits = [self._next["watchdog"] - now, self._next["processes"] - now]
        waits.append(self._attempts.next_scan - now)
        waits += [kill.next_look - now for kill in self._kills]
        if self._attempts.unreported or self._ending:
            waits.append(_LOOK_AT_OUTPUT)
        if self._logs.has_grown():
            waits.append(self._logs.next_sizes - now)
        if now - self._woken < _LOOK_AGAIN:
            waits.append(_LOOK_AGAIN)
        return max(0.0, min(waits))

    def _due(self, what: str, now: float, every: float) -> bool:
        if now < self._next[what]:
            return False
        self._next[what] = now + every
        return True

    def _over(self) -> bool:
        """Everything is dead, what the tasks wrote is in their files, and the launcher, if there
        is one, has been told."""
        if self._kills or not self._ending:
            return False
        since = max(self._ending_since, self._kills.ended_at)
        if time.monotonic() - since > _WAIT_FOR_OUTPUT:
            return True  # a launcher that does not read, a survivor that holds its output open
        if any(attempt.state is not State.CLOSED for attempt in self._attempts.all):
            return False
        return not self._channels.is_behind

    def _clean_up(self, proven: bool) -> None:
        """The last of the disk, which may hang; `proven`: nothing is left that is not known."""
        self._stats.close()
        if self._remove or not self._attempts:  # without a task there is nothing to collect
            if os.path.exists(self._folders.stage):
                from .tree import keep_for_reuse

                keep_for_reuse(self._folders.stage)
            self._folders.remove(proven=proven)
        else:
            saved = state.snapshot(self._attempts.all, self._tracker, self._ending)
            state.write(self._folders, saved)
            if proven:
                self._folders.prove_end()
            self._folders.unlink_socket()

    def _beat_watchdog(self, word: bytes) -> None:
        try:
            os.write(self._watchdog, word)
        except OSError:
            self._unguarded = True  # it is dead, and its death has sent us TERM

    def _end_stopped_watchdog(self) -> None:
        """Ends the watchdog if somebody has stopped it: it has nothing more to watch, and would
        stay for ever. One that works goes by itself."""
        watchdog = None if self._unguarded else proc.read_process(os.getppid())
        if watchdog is not None and watchdog.state in "Tt":
            proc.send(watchdog, (signal.SIGKILL,))

    def _on_term(self, *_: object) -> None:
        self._term = True

    # --- requests of a launcher -------------------------------------------------------------

    def _handle(self, channel: Channel, frame: wire.Frame) -> None:
        if not channel.admitted and frame.type != wire.HELLO:
            raise wire.WireError("the first frame must be HELLO")
        if channel.queued > _MOST_QUEUED:
            raise wire.WireError("the launcher does not read its answers")
        request = requests.parse_request(frame)
        self._handlers[type(request)](channel, request)

    def _hello(self, channel: Channel, hello: requests.Hello) -> None:
        if channel.admitted:
            raise wire.WireError("unexpected HELLO")
        if hello.rules is None:  # a query: no launcher is replaced, no lease is renewed
            self._welcome(channel, hello)
            return
        if not self._channels.admit(channel, hello.token, hello.launcher):
            return
        self._rules = hello.rules
        left = self._ending is not None and self._ending.reason is ExitReason.LAUNCHER_LEFT
        if not left and not self._unguarded:
            self._ending = None  # a launcher came while the agent was about to go by itself
        self._welcome(channel, hello)

    def _welcome(self, channel: Channel, hello: requests.Hello) -> None:
        channel.send(
            Welcome(
                version=wire.VERSION,
                pid=os.getpid(),
                home=self._folders.home,
                stage=self._folders.stage,
                environ={k: os.environ[k] for k in hello.variables if k in os.environ},
                tasks=tuple(a.facts(TaskFacts) for a in self._attempts.all if a.announced),
                previous_exit=self._previous_exit,
            )
        )

    def _share_text(self, channel: Channel, sent: requests.ShareText) -> None:
        channel.texts[sent.number] = sent.text

    def _start(self, channel: Channel, wanted: requests.Start) -> None:
        argv, env = wanted.program(channel.texts)
        task = str(wanted.task)
        killed = any(kill.tasks is None or task in kill.tasks for kill in self._kills)
        refused = killed or self._ending is not None
        self._attempts.start(wanted, argv, env, self._umask, refused)

    def _ports(self, channel: Channel, asked: requests.Ports) -> None:
        def look() -> PortsAnswer:
            owners = [ports.owner(port) for port in asked.check]
            picked = self._picker.pick(asked.pick, asked.avoid)
            return PortsAnswer(tuple(picked), tuple(owner for owner in owners if owner))

        channel.answer_in_thread(asked.id, look)

    def _answer_stats(self, channel: Channel, asked: requests.Stats) -> None:
        try:
            channel.answer(asked.id, self._stats.sample(self._tracker.scan()))
        except OSError as error:  # no descriptor is left
            channel.refuse(asked.id, error_text(error))

    def _leave(self, channel: Channel, wanted: requests.Leave) -> None:
        self._end(AgentExit(ExitReason.LAUNCHER_LEFT, "the launcher has left"))
        self._remove = wanted.remove
        channel.send(Gone(by=""))

    # --- what happens by itself -----------------------------------------------------------

    def _scan_processes(self) -> None:
        try:
            self._tracker.scan()
        except OSError as error:  # no descriptor is left, here or on the whole machine
            log_line(f"the processes of this host cannot be read: {error_text(error)}")
        if set(self._tracker.known_processes) != self._saved_processes:
            self._save()

    def _save(self) -> None:
        self._saved_processes = set(self._tracker.known_processes)
        self._unsaved.append(state.snapshot(self._attempts.all, self._tracker, self._ending))
        self._writer.do(self._write_state)

    def _write_state(self) -> None:
        with suppress(IndexError):  # the call before has written this state already
            state.write(self._folders, self._unsaved.pop())

    def _check_lease(self, now: float) -> None:
        if self._term:
            self._term, self._unguarded = False, True
            self._self_terminate(ExitReason.TERMINATED, "the agent was told to stop")
        if self._ending:
            return
        idle = self._rules.lease if self._by_engine or self._staged else _IDLE
        if self._attempts or self._channels:
            self._staged = None  # files may be coming
        elif now - self._channels.last_beat > idle:
            if self._staged is None:
                self._staged = True  # until it has been looked for
                self._writer.do(self._look_for_files)
            elif self._staged is False or idle == self._rules.lease:
                self._end(AgentExit(ExitReason.NOTHING_STARTED, "nothing was started"))
                return
        silent = now - self._channels.last_beat
        if silent < self._rules.lease:
            return
        if self._rules.on_disconnect == "stop":
            self._self_terminate(ExitReason.LEASE_EXPIRED, f"no launcher for {silent:.0f} s")
        elif all(attempt.ended for attempt in self._attempts.all):
            # kept alive, and nothing is left to keep
            self._end(AgentExit(ExitReason.TASKS_ENDED, "all tasks have ended"))

    def _look_for_files(self) -> None:
        """Files have come for a launcher that is cut off and may be back; looked for in the thread,
        as a disk may hang."""
        self._staged = os.path.exists(self._folders.stage)
        self._wakeups.wake()

    def _self_terminate(self, reason: ExitReason, text: str) -> None:
        if self._rules.on_disconnect == "keep" and reason is not ExitReason.TERMINATED:
            return
        log_line(f"terminating by itself: {text}")
        self._channels.send(Note(f"the agent ends everything: {text}"))
        self._previous_exit = AgentExit(reason, text)
        self._end(self._previous_exit)
        self._kills.begin([], None, self._rules.grace)
        self._kills.step()

    def _launcher_died(self) -> None:
        if self._local and not self._ending:
            self._self_terminate(ExitReason.LAUNCHER_DIED, "the launcher died")

    def _end(self, why: AgentExit) -> None:
        self._ending = why
        self._ending_since = time.monotonic()
