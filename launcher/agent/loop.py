"""Loop of the agent: input, kills, lease, logs — in this order.

One thread and one selector for all that beats, kills and reaps. Nothing in here waits: a kill is a
state, and whatever touches a disk (which may hang for minutes) is done by two threads: the drain
moves task output into files, the disk thread opens and reads logs and writes `agent.log`.

Frames are plain dictionaries here: who speaks on a channel acts with this very account. One that is
wrong costs the channel on which it came and nothing else, so each handler reads all that it needs
of a frame before it changes anything.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Callable

from . import ports, processes, wire
from .attempts import Attempt, Attempts, State, signal_name
from .channel import Channel, Channels, Greeting, LeaseRules
from .folders import Before, Folders, Word, lock_within
from .kills import Kills
from .signals import has_come
from .stack_taker import StackTaker
from .stats import StatsSampler
from .task_logs import TaskLogs
from .threads import Wakeups, WorkerThread, error_text, log_line, write_lines_by
from .wire import Json

_LOOK_SECONDS = (2.0, 5.0)
"""Least and most seconds between two looks at all processes of the host."""
_LOOK_SHARE = 0.002
"""Share of a processor that the looks take: a large machine has thousands of processes, the
kernel's own threads among them."""
_LOOK_FOR_WORD = 0.1
_BEAT_WATCHDOG = 1.0
_WORK_SECONDS = 0.05
"""Longest time in a turn for what threads have left to be done, such as forks."""
_LOOK_AGAIN = 0.04
_LOOK_AT_OUTPUT = 0.005
_LOOK_AT_SIGNALS = 0.05
_MOST_SIGNALS = 64
_SAME_SIGNAL = 0.3
_WAIT_FOR_OUTPUT = 1.0
_BEFORE_WELCOME = (wire.HELLO, wire.BEAT)
"""Frames that a launcher sends before it has read our welcome."""
_MOST_QUEUED = 4096
"""Answers that wait for a launcher; each is some hundred bytes."""
_WAIT_FOR_DISK = 5.0
_WAIT_FOR_REMOVAL = 120.0
"""A million files take so long; what is not removed by then stays on the host."""
_TOUCH_SOCKET = 3600.0
_HAS_LEFT = "the launcher has left"
_IDLE = 5.0
"""Seconds after which an agent goes that has no launcher and nothing of the run: no file, no task,
or only tasks that have been killed with all the rest. One that an engine has started waits for its
lease."""


class Agent:
    """Owner of a run's tasks on one host until nothing of them is left.

    `config` is what the launcher's bootstrap sent, `umask` that of the login; `watchdog` is a
    pipe to the watchdog, `signals` one from it; `before` is what an earlier agent has left, whose
    watchdog has ended when the file `watch` can be locked: then it is locked for the watchdog of
    this one.
    """

    def __init__(
        self,
        config: Json,
        umask: int,
        folders: Folders,
        listener: socket.socket,
        watchdog: int,
        signals: int,
        before: Before,
        watch: int,
    ) -> None:
        self._rules = LeaseRules.of(config["rules"])
        self._local = bool(config["local"])
        self._by_engine = bool(config.get("by_engine"))
        self._folders = folders
        self._listener = listener
        self._watchdog = watchdog
        self._signals = signals
        self._passing: list[tuple[float, int]] = []
        """Signals for the tasks, each with its time."""
        self._passed: dict[int, float] = {}
        """Signals that were passed on, each with its last time."""
        self._before = before
        self._previous_end = before.text
        self._watch = watch
        self._looked_for_word = True
        tracker = self._tracker = processes.ProcessTracker(config["run_id"], os.getsid(0))
        self._stats = StatsSampler()
        self._stacks = StackTaker()
        self._selector = selectors.DefaultSelector()
        self._wakeups = Wakeups()
        self._disk = WorkerThread("disk")
        later = self._wakeups.do_later
        self._channels = Channels(
            self._selector, self._handle, self._launcher_died, later, self._disk
        )
        self._logs = TaskLogs(
            folders, self._channels, self._wakeups.wake, self._disk, local=self._local
        )
        known = []
        tracker.known_processes = {(pid, start): task for pid, start, task in before.left}
        with suppress(KeyError, TypeError, ValueError):  # somebody has written to the file
            for facts in before.tasks:
                known.append(Attempt.ended_before(facts, self._logs))
        self._attempts = Attempts(
            known, self._selector, self._channels, self._logs, tracker, later, self._disk, umask
        )
        self._kills = Kills(tracker, self._attempts, self._channels, before)
        self._handlers: dict[int, Callable[[Channel, Json], None]] = {
            wire.HELLO: self._hello,
            wire.BEAT: lambda channel, _: channel.send(wire.PONG, {}),
            wire.START: self._start,
            wire.RELEASE: lambda _, body: self._attempts.release(body),
            wire.KILL: lambda _, body: self._kills.request(body),
            wire.LEAVE: self._leave,
            wire.READ_LOG: self._read_log,
            wire.CREDIT: lambda channel, body: channel.allow(int(body["up_to"])),
            wire.PORTS: self._answer_ports,
            wire.STATS: self._answer_stats,
            wire.GPUS: self._answer_gpus,
            wire.STACKS: self._answer_stacks,
            wire.RULES: self._change_rules,
        }
        self._woken = 0.0
        self._next = dict.fromkeys(("processes", "watchdog", "touch", "word"), 0.0)
        self._staged: bool | None = None
        self._ending = ""
        """Why the agent ends; empty while it goes on."""
        self._ending_since = 0.0
        self._left = False
        """The launcher has left: the run is over."""
        self._remove = False
        self._brought: list[str] = []
        """Paths that the launcher has fetched: nothing in them is kept as a result."""
        self._term = False
        self._unguarded = False

    # --- the loop -------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until the run is over here."""
        signal.set_wakeup_fd(self._wakeups.write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(self._wakeups.read_fd, selectors.EVENT_READ, None)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._signals, selectors.EVENT_READ, None)
        write_lines_by(self._disk)
        self._logs.drain.start()
        sys.setswitchinterval(0.0005)  # the drain must not wait 5 ms for its turn
        while not self._over():
            self._turn()
        self._channels.listen()
        self._selector.unregister(self._listener)
        self._listener.shutdown(socket.SHUT_RDWR)  # bridges are refused, and make the next agent
        done = self._disk.do(self._clean_up)
        until = time.monotonic() + _WAIT_FOR_DISK
        while not done.wait(_LOOK_AT_OUTPUT) and time.monotonic() < until:
            self._channels.write()  # nothing is read any more: who comes now gets the next agent
        self._channels.close()
        self._beat_watchdog(b"Q")
        self._end_stopped_watchdog()
        if self._remove:  # nobody comes any more, and nobody waits for us
            done.wait(_WAIT_FOR_REMOVAL)

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj is self._listener:
                self._channels.accept(self._listener)
            elif key.fd == self._wakeups.read_fd:
                self._woken = time.monotonic()
                self._wakeups.drain()
            elif key.fd == self._signals:
                self._take_signals()
            elif isinstance(key.data, socket.socket):
                self._channels.open(key.data)
            elif isinstance(key.data, Attempt):
                self._attempts.executed(key.data)
        self._channels.read()
        self._wakeups.work(_WORK_SECONDS)
        self._check_term()  # first: a machine that shuts down signals tasks as well as agents
        self._attempts.poll()
        self._kills.step()
        now = time.monotonic()
        self._pass_signals_on(now)
        if now >= self._attempts.next_scan:
            self._attempts.find_listeners()
        if now >= self._next["processes"]:
            try:
                self._look_at_processes()
            except OSError as error:  # no descriptor is left, here or on the whole machine
                log_line(f"the processes of this host cannot be read: {error_text(error)}")
        if self._due("watchdog", now, _BEAT_WATCHDOG):
            self._beat_watchdog(b"b")
            self._channels.listen()
        if self._looked_for_word and self._watch >= 0 and self._due("word", now, _LOOK_FOR_WORD):
            self._looked_for_word = False
            self._disk.do(self._look_for_word)
        self._check_lease(now)
        if self._due("touch", now, _TOUCH_SOCKET):
            self._disk.do(self._folders.touch)
        self._logs.send_sizes(now)
        self._logs.send_losses()
        self._channels.write()

    def _patience(self) -> float:
        now = time.monotonic()
        waits = [self._next["watchdog"] - now, self._next["processes"] - now]
        waits.append(self._attempts.next_scan - now)
        waits += [kill.next_look - now for kill in self._kills]
        if self._wakeups.work_waits:
            waits.append(0.0)
        waits += [due - now for due, _ in self._passing]
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
        if self._kills or not self._ending or self._awaits_survivors:
            return False
        since = max(self._ending_since, self._kills.ended_at)
        if time.monotonic() - since > _WAIT_FOR_OUTPUT:
            return True  # a launcher that does not read, a survivor that holds its output open
        if any(attempt.state is not State.CLOSED for attempt in self._attempts.all):
            return False
        return not self._channels.is_behind

    @property
    def _awaits_survivors(self) -> bool:
        """Something has outlived a kill of everything, and we alone are above it: when it has gone,
        the kernel tells us, and nobody else. Who tells us to go, or an engine with a word of its
        own, is not kept waiting."""
        told = self._left or self._unguarded or self._by_engine
        return self._kills.outlived and not told

    def _clean_up(self) -> None:
        """The last of the disk, which may hang."""
        self._stats.close()
        certain = self._kills.word is Word.PROVEN
        proven = certain and self._attempts.none_left and not self._kills.survivors
        if self._remove or not self._attempts:  # without a task there is nothing to collect
            moved = True
            if os.path.exists(self._folders.stage):
                from .tree import keep_for_reuse, keep_results

                with suppress(OSError):  # a full disk: who collects now may have to do it again
                    open(self._folders.leaving, "w").close()
                moved = keep_results(self._folders.stage, self._folders.results, self._brought)
                if moved:
                    keep_for_reuse(self._folders.stage)
            self._folders.remove(proven=proven, staged=moved)
        else:
            tasks = [attempt.facts() for attempt in self._attempts.all if attempt.announced]
            left = [(*key, task) for key, task in self._tracker.known_processes.items()]
            signalled = self._kills.signalled
            self._folders.write_end(self._ending, tasks, left, signalled, proven=proven)
            self._folders.unlink_socket()

    def _beat_watchdog(self, word: bytes) -> None:
        try:
            os.write(self._watchdog, word)
        except OSError:
            self._unguarded = True  # it is dead, and its death has sent us TERM

    def _look_for_word(self) -> None:
        """What the watchdog of the earlier agent says when it ends; looked for in the thread."""
        ended = lock_within(self._watch, 0.0)  # before the look, or a word might come in between
        if self._kills.word is Word.AWAITED:
            self._kills.word = self._folders.word(self._before.began, alone=ended)
        if ended:
            os.close(self._watch)  # only our watchdog's end lets go of the lock
            self._watch = -1
        self._looked_for_word = True

    def _end_stopped_watchdog(self) -> None:
        """Ends the watchdog if somebody has stopped it: it has nothing more to watch, and would
        stay for ever. One that works goes by itself."""
        watchdog = None if self._unguarded else processes.read_process(os.getppid())
        if watchdog is not None and watchdog.state in "Tt":
            processes.send(watchdog, (signal.SIGKILL,))

    def _take_signals(self) -> None:
        """Signals to our job step, which the watchdog has got."""
        numbers = os.read(self._signals, 4096)
        if not numbers:  # it is dead
            self._selector.unregister(self._signals)
        due = time.monotonic() + _LOOK_AT_SIGNALS
        self._passing += [(due, number) for number in numbers[:_MOST_SIGNALS]]

    def _pass_signals_on(self, now: float) -> None:
        """Passes on to the tasks what is due; not what has come to this process, too: its sender
        has signalled all processes of the step."""
        while self._passing and self._passing[0][0] <= now:
            number = self._passing.pop(0)[1]
            if has_come(number):
                continue
            before = self._passed.get(number)
            if before is not None and now - before < _SAME_SIGNAL:
                continue  # `scancel --full` signals the batch script as well, which passes it on
            count = self._attempts.pass_on(number, self._rules.grace)
            self._passed[number] = now
            if count and before is None:
                what = f"SIG{signal_name(number)}, sent to the job step, was passed on to "
                text = f"{what}{count} task{'' if count == 1 else 's'}"
                self._channels.send(wire.NOTE, {"text": text})

    def _on_term(self, *_: object) -> None:
        self._term = True

    # --- requests of a launcher -------------------------------------------------------------

    def _handle(self, channel: Channel, frame: wire.RawFrame) -> None:
        name = wire.NAMES[frame.type]
        if channel.greeting is None and frame.type != wire.HELLO:
            raise wire.WireError("the first frame must be HELLO")
        if channel.queued > _MOST_QUEUED:
            raise wire.WireError("the launcher does not read its answers")
        if frame.type not in self._handlers:
            raise wire.WireError(f"unexpected {name}")
        if not channel.admitted and frame.type not in _BEFORE_WELCOME:
            self._take_over(channel)
        try:
            self._handlers[frame.type](channel, frame.json())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise wire.WireError(f"{name}: {type(error).__name__}: {error}") from error

    def _hello(self, channel: Channel, hello: Json) -> None:
        if hello["version"] != wire.VERSION:
            raise wire.VersionError(
                f"its agent is of another version of tfmux (protocol {wire.VERSION}; this launcher "
                f"speaks {str(hello['version'])[:20]})"
            )
        if channel.greeting is not None:
            raise wire.WireError("unexpected HELLO")
        welcome = {
            "version": wire.VERSION,
            "pid": os.getpid(),
            "home": self._folders.home,
            "stage": self._folders.stage,
            "environ": {k: os.environ[k] for k in hello["variables"] if k in os.environ},
            "tasks": [attempt.facts() for attempt in self._attempts.all if attempt.announced],
            "previous_end": self._previous_end,
        }
        if hello.get("rules") is not None:  # else a query: nobody is replaced, no lease is renewed
            rules = LeaseRules.of(hello["rules"])
            purpose = str(hello.get("purpose", ""))
            greeting = Greeting(hello["token"], str(hello["launcher"]), rules, purpose)
            if not self._channels.greet(channel, greeting):
                return
        channel.send(wire.WELCOME, welcome)

    def _take_over(self, channel: Channel) -> None:
        """A launcher has read our welcome: the run is its own from now on."""
        self._rules = self._channels.admit(channel)
        if not self._left and not self._unguarded:
            self._ending = ""  # a launcher came while the agent was about to go by itself

    def _start(self, channel: Channel, body: Json) -> None:
        self._kills.known = self._kills.proven = False
        killed = self._kills.covers(body["task"])
        self._attempts.start(body, killed=killed, ending=self._ending)

    def _read_log(self, channel: Channel, body: Json) -> None:
        attempt = int(body.get("attempt", 0))
        # Of an agent before this one, which has died: nobody else tells its end.
        unseen = attempt and not self._attempts.knows(str(body["task"]), attempt)
        self._logs.open(channel, body, self._wakeups.do_later if unseen else None)

    def _answer_ports(self, channel: Channel, body: Json) -> None:
        channel.answer_in_thread(
            body["id"], lambda: ports.look(body["check"], body.get("candidates", ()))
        )

    def _answer_stats(self, channel: Channel, body: Json) -> None:
        try:
            stats = self._stats.sample(self._look_at_processes(), self._attempts.terminals())
            channel.answer(body["id"], {**stats, "beyond": self._logs.beyond()})
        except OSError as error:  # no descriptor is left
            channel.refuse(body["id"], error_text(error))

    def _answer_gpus(self, channel: Channel, body: Json) -> None:
        try:
            members = self._look_at_processes()
        except OSError as error:  # no descriptor is left
            channel.refuse(body["id"], error_text(error))
        else:
            channel.answer_in_thread(body["id"], lambda: self._stats.list_gpus(members))

    def _answer_stacks(self, channel: Channel, body: Json) -> None:
        tasks, ident = body.get("tasks"), body["id"]
        try:
            members = self._look_at_processes()
        except OSError as error:  # no descriptor is left
            channel.refuse(ident, error_text(error))
            return
        wanted = {pid: one for pid, one in members.items() if tasks is None or one[1] in tasks}
        self._stacks.answer(channel, ident, wanted)

    def _change_rules(self, channel: Channel, body: Json) -> None:
        """Holds other rules from now on, and says which."""
        self._rules = LeaseRules.of(body["rules"])
        channel.answer(body["id"], {"rules": self._rules.to_json()})

    def _leave(self, channel: Channel, body: Json) -> None:
        brought = [str(path) for path in body.get("brought", ())]
        self._left, self._remove, self._brought = True, bool(body.get("remove")), brought
        self._attempts.over = True
        self._attempts.poll()
        killed = self._kills.known or any(kill.tasks is None for kill in self._kills)
        if self._attempts.none_left or killed:
            self._end(_HAS_LEFT)
        else:  # something lives that nobody has killed: it is not left with nobody above it
            self._end_all(_HAS_LEFT, grace=0.0)
        channel.send(wire.GONE, {"by": ""})

    # --- what happens by itself -----------------------------------------------------------

    def _look_at_processes(self) -> dict[int, tuple[processes.Process, str]]:
        """The run's processes and their tasks. A process that was seen as a task's stays the
        task's, whatever it does later: there is a look every few seconds, asked for or not."""
        began, (least, most) = time.thread_time(), _LOOK_SECONDS
        self._next["processes"] = time.monotonic() + least
        members = self._tracker.scan()
        took = time.thread_time() - began
        self._next["processes"] = time.monotonic() + min(most, max(least, took / _LOOK_SHARE))
        return members

    def _check_term(self) -> None:
        if self._term:
            self._term, self._unguarded = False, True
            self._end_all("the agent was told to stop")

    def _check_lease(self, now: float) -> None:
        if self._ending:
            if self._awaits_survivors and self._attempts.none_left and not self._kills:
                # Which finds nothing, and is the proof.
                self._kills.begin([], None, 0.0, wire.BY_AGENT, self._ending)
            return
        idle = self._rules.lease if self._by_engine or self._staged else _IDLE
        if self._attempts or self._channels:
            self._staged = None  # files may be coming
        elif now - self._channels.last_beat > idle:
            if self._staged is None:
                self._staged = True  # until it has been looked for
                self._disk.do(self._look_for_files)
            elif self._staged is False or idle == self._rules.lease:
                self._end("nothing was started")
                return
        silent = now - self._channels.last_beat
        dead = self._kills.proven and self._attempts.none_left
        if dead and silent > _IDLE and not self._channels and not self._by_engine:
            self._end("everything was killed")
            return
        if silent < self._rules.lease:
            return
        if not self._rules.keep:
            self._end_all(f"no launcher for {silent:.0f} s")
        elif self._attempts.none_left and all(attempt.ended for attempt in self._attempts.all):
            self._end("all tasks have ended")  # kept alive, and nothing is left to keep

    def _look_for_files(self) -> None:
        """Files have come for a launcher that is cut off and may be back; looked for in the thread,
        as a disk may hang."""
        self._staged = os.path.exists(self._folders.stage)
        self._wakeups.wake()

    def _end_all(self, why: str, grace: float | None = None) -> None:
        """Kills everything, and ends."""
        grace = self._rules.grace if grace is None else grace
        log_line(f"ending all tasks: {why}")
        self._channels.send(wire.NOTE, {"text": f"the agent ends everything: {why}"})
        self._previous_end = why  # told to a launcher that comes meanwhile
        self._end(why)
        self._kills.begin([], None, grace, wire.BY_AGENT, why)
        self._kills.step()

    def _launcher_died(self) -> None:
        if self._local and not self._rules.keep and not self._ending:
            self._end_all("the launcher died")

    def _end(self, why: str) -> None:
        self._ending = why
        self._ending_since = time.monotonic()
