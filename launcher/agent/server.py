"""The agent's loop: input, kills, lease, logs — in this order.

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
import threading
import time
from typing import Any, Callable, Dict

from . import ports, probe, proc, requests, stage, state, stats, wire
from .attempts import Attempts
from .census import Census
from .channel import Channel
from .channels import Channels
from .files import Files
from .folders import FolderError, Folders
from .kills import Kill
from .log_reader import LogReader
from .notes import reason, say, write_in_background
from .outputs import Outputs
from .tasks import Attempt
from .workers import Newest, Worker

_LOOK_LISTENING = 0.03
_ROSTER = 1.0
_BEAT_GUARDIAN = 1.0
_SIZE_PACE = 0.03
_LOOK_AGAIN = 0.02
_LOOK_AT_OUTPUT = 0.005
_WAIT_FOR_OUTPUT = 1.0
_MOST_QUEUED = 4096
"""Answers that wait for a launcher; each is some hundred bytes."""
_WAIT_FOR_DISK = 5.0
_TOUCH_SOCKET = 3600.0
_IDLE = 5.0
"""Seconds after which an agent goes that has no launcher and never started anything."""


_LEFT = "the launcher has left"


class Agent:
    """Owns a run's tasks on one host until nothing of them is left.

    `config` is what the launcher's bootstrap sent: `run_id`, `host`, `lease` and `grace` in
    seconds, `on_disconnect`, `local` (the end of the channel means that the launcher is dead).
    """

    def __init__(
        self,
        config: dict[str, Any],
        folders: Folders,
        listeners: list[socket.socket],
        guardian: int,
    ) -> None:
        self._config = config
        self._folders = folders
        self._listeners = listeners
        self._guardian = guardian
        self._umask = int(config["umask"])
        self._census = Census(config["run_id"], apart=os.getsid(0))
        known, self._was = state.load(folders, self._census)
        self._kills: list[Kill] = []
        self._picker = ports.Picker(os.path.join(folders.local, "ports"))
        self._stats = stats.Stats()
        self._probe = probe.Probe(folders)
        self._selector = selectors.DefaultSelector()
        self._channels = Channels(
            self._selector,
            LogReader(self._do_later),
            self._handle,
            self._launcher_died,
        )
        self._files = Files(folders, self._channels, self._apart, self._do_later)
        self._keeper = Worker("keeper")
        self._state = Newest[Dict[str, Any]]("state", lambda body: state.write(folders, body))
        self._wake_read, self._wake_write = os.pipe()
        self._later: list[Callable[[], None]] = []
        self._outputs = Outputs(
            folders,
            self._channels,
            {attempt.task: attempt.log for attempt in known},
            self._wake,
            local=bool(config["local"]),
        )
        self._attempts = Attempts(
            known,
            self._selector,
            self._channels,
            self._outputs,
            self._census,
            self._do_later,
            self._reaper_killed,
            self._save,
        )
        self._woken = 0.0
        self._signalled = 0
        """Processes signalled by kills of everything: who asks again, after a cut, has not heard
        the receipt of the first."""
        self._next = {"listening": 0.0, "roster": 0.0, "guardian": 0.0, "sizes": 0.0, "touch": 0.0}
        self._saved_roster: set[proc.Key] = set()
        self._ending = ""
        self._ending_since = 0.0
        self._remove = False
        self._term = False
        self._unguarded = False

    # --- the loop -------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until the run is over here."""
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, None)
        write_in_background()
        self._outputs.start()
        self._attempts.begin()
        sys.setswitchinterval(0.0005)  # the drain must not wait 5 ms for its turn
        while not self._over():
            self._turn()
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        last = threading.Thread(target=self._clean_up, name="clean up", daemon=True)
        last.start()
        until = time.monotonic() + _WAIT_FOR_DISK
        while last.is_alive() and time.monotonic() < until:
            self._turn()
        self._channels.close()
        self._beat_guardian(b"Q")

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj in self._listeners:
                self._channels.accept(key.fileobj)
            elif key.fd == self._wake_read:
                self._drain_wakeups()
            elif isinstance(key.data, socket.socket):
                self._channels.open(key.data)
            elif isinstance(key.data, Attempt):
                self._attempts.stirred = True
        self._channels.read()
        for work in self._take_later():
            work()
        self._attempts.hear()
        self._look_at_kills()
        now = time.monotonic()
        if self._due("listening", now, _LOOK_LISTENING):
            self._look_for_listeners()
        if self._due("roster", now, _ROSTER):
            self._look_at_roster()
        if self._due("guardian", now, _BEAT_GUARDIAN):
            self._beat_guardian(b"b")
        self._look_at_lease(now)
        if self._due("touch", now, _TOUCH_SOCKET):
            self._keeper.do(self._folders.touch)
        if self._due("sizes", now, _SIZE_PACE):
            self._outputs.tell_sizes()
        self._outputs.tell_losses()
        self._channels.write()

    def _patience(self) -> float:
        now = time.monotonic()
        waits = [self._next["guardian"] - now, self._next["roster"] - now]
        waits += [kill.next_look - now for kill in self._kills]
        if any(a.port and not a.ended and not a.listening for a in self._attempts.all):
            waits.append(self._next["listening"] - now)
        if any(a.ended and not a.told for a in self._attempts.all) or self._ending:
            waits.append(_LOOK_AT_OUTPUT)
        if self._outputs.has_grown():
            waits.append(self._next["sizes"] - now)
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
        if time.monotonic() - self._ending_since > _WAIT_FOR_OUTPUT:
            return True  # a launcher that does not read, a survivor that holds its output open
        if any(not attempt.eof for attempt in self._attempts.all):
            return False
        return not self._channels.is_behind

    def _clean_up(self) -> None:
        """The last of the disk, in a thread: it may hang."""
        try:
            self._probe.close()
            self._stats.close()
            if self._remove or not self._attempts:  # without a task there is nothing to collect
                self._files.put_aside()
                self._folders.remove()
            else:
                body = state.collect(self._attempts.all, self._census, self._ending)
                state.write(self._folders, body)
                self._folders.unlink_socket()
        finally:
            self._wake()

    def _beat_guardian(self, word: bytes) -> None:
        try:
            os.write(self._guardian, word)
        except OSError:
            self._unguarded = True  # it is dead, and its death has sent us TERM

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            return  # the loop is awake already

    def _drain_wakeups(self) -> None:
        self._woken = time.monotonic()
        try:
            while data := os.read(self._wake_read, 4096):
                self._attempts.stirred |= signal.SIGCHLD in data
        except BlockingIOError:
            return

    def _do_later(self, work: Callable[[], None]) -> None:
        """Has the loop do it; called by threads."""
        self._later.append(work)
        self._wake()

    def _take_later(self) -> list[Callable[[], None]]:
        later, self._later = self._later, []
        return later

    def _on_term(self, *_: object) -> None:
        self._term = True

    # --- what a launcher says -------------------------------------------------------------

    def _handle(self, channel: Channel, frame: wire.Frame) -> None:
        if not channel.greeted and frame.type != wire.HELLO:
            raise wire.WireError("the first frame must be HELLO")
        if frame.type == wire.STAGE:
            self._files.contents(channel, frame.body)
            return
        if channel.queued > _MOST_QUEUED:
            raise wire.WireError("the launcher does not read its answers")
        said = requests.parse(frame)
        handlers = {
            wire.HELLO: self._hello,
            wire.BEAT: self._beat,
            wire.START: self._start,
            wire.OPEN: self._outputs.open,
            wire.CREDIT: self._credit,
            wire.KILL: self._kill,
            wire.PORTS: self._ports,
            wire.STATS: self._tell_stats,
            wire.STAGED: self._files.manifest,
            wire.LEAVE: self._leave,
            wire.PROBE: self._look,
            wire.COLLECT: self._files.collect,
        }
        handlers[frame.type](channel, said)

    @staticmethod
    def _beat(channel: Channel, _: dict[str, Any]) -> None:
        channel.send(wire.PONG, {"time": time.time()})

    def _hello(self, channel: Channel, said: dict[str, Any]) -> None:
        if channel.greeted:
            raise wire.WireError("unexpected HELLO")
        if said.get("query"):  # somebody only looks: nobody is sent away, no lease is renewed
            self._welcome(channel, said)
            return
        rules = {
            "lease": float(said["lease"]),
            "grace": float(said["grace"]),
            "on_disconnect": str(said["on_disconnect"]),
        }
        if not self._channels.greet(channel, str(said["token"]), str(said["who"])):
            return
        self._config.update(rules)
        if self._ending and self._ending != _LEFT and not self._unguarded:
            self._ending = ""  # a launcher came while the agent was about to go by itself
        self._welcome(channel, said)

    def _welcome(self, channel: Channel, said: dict[str, Any]) -> None:
        channel.send(
            wire.WELCOME,
            {
                "version": wire.VERSION,
                "pid": os.getpid(),
                "python": sys.version.split()[0],
                "home": self._folders.home,
                "stage": self._folders.stage,
                "hostname": os.uname().nodename,
                "time": time.time(),
                "environ": {k: os.environ[k] for k in said["names"] if k in os.environ},
                "was": self._was,
                "tasks": [a.facts() for a in self._attempts.all if a.announced],
            },
        )

    def _start(self, _: Channel, said: dict[str, Any]) -> None:
        doomed = any(kill.tasks is None or said["task"] in kill.tasks for kill in self._kills)
        self._attempts.start(said, self._umask, doomed or bool(self._ending))

    @staticmethod
    def _credit(channel: Channel, said: dict[str, Any]) -> None:
        channel.credit = max(channel.credit, int(said["upto"]))

    def _kill(self, _: Channel, said: dict[str, Any]) -> None:
        tasks = None if said["tasks"] is None else set(said["tasks"])
        for kill in self._kills:
            if kill.tasks == tasks or kill.tasks is None:  # pressed again
                kill.ids.append(said["id"])
                if said["grace"] <= 0:
                    kill.hurry()
                return
        self._begin_kill([said["id"]], tasks, said["grace"])

    def _begin_kill(self, ids: list[int], tasks: set[str] | None, grace: float) -> None:
        self._kills.append(Kill(ids, tasks, grace, self._census, self._attempts))
        self._look_at_kills()  # the signal goes out in this very turn

    def _reaper_killed(self, attempt: Attempt) -> None:
        """A task may kill its parent. The kernel has ended its first process with the reaper; what
        else it had is ours now, and ends, too: nobody could say any more whose it is."""
        say(f"the reaper of {attempt.task} was killed")
        self._kills.append(Kill([], {attempt.task}, 0.0, self._census, self._attempts))

    def _ports(self, channel: Channel, said: dict[str, Any]) -> None:
        def look() -> dict[str, Any]:
            holders = [ports.holder(port) for port in said["look"]]
            picked = self._picker.pick(said["pick"], said["avoid"])
            return {"picked": picked, "held": [holder for holder in holders if holder]}

        self._apart(channel, said["id"], look)

    def _tell_stats(self, channel: Channel, said: dict[str, Any]) -> None:
        figures = self._stats.look(self._census.take())
        channel.send(wire.REPLY, {"id": said["id"], **figures})

    def _look(self, channel: Channel, said: dict[str, Any]) -> None:
        self._apart(channel, said["id"], lambda: self._probe.answer(said))

    def _leave(self, channel: Channel, said: dict[str, Any]) -> None:
        if said.get("handover"):
            channel.leaving = True
            return
        self._end(_LEFT)
        self._remove = bool(said["remove"])
        channel.send(wire.GONE, {"by": ""})

    def _apart(self, channel: Channel, ident: int, work: Callable[[], dict[str, Any]]) -> None:
        """Does what may block (a disk, a name server) in a thread of its own, and replies with
        what it says."""

        def act() -> None:
            answer: dict[str, Any] = {"id": ident}
            try:
                answer.update(work())
            except (stage.StageError, FolderError, OSError, LookupError, ValueError) as error:
                answer["error"] = reason(error)
            self._do_later(lambda: channel.send(wire.REPLY, answer))

        threading.Thread(target=act, name="apart", daemon=True).start()

    # --- what happens by itself -----------------------------------------------------------

    def _look_at_kills(self) -> None:
        now = time.monotonic()
        for kill in list(self._kills):
            if not kill.is_due(now):
                continue
            receipt = kill.look()
            if receipt is None:
                continue
            self._kills.remove(kill)
            if not self._kills:
                self._attempts.killed()
            self._ending_since = now
            self._attempts.give_up(kill.tasks)
            self._attempts.hear()
            if kill.tasks is None:
                receipt["signalled"] += self._signalled
                self._signalled = receipt["signalled"]
            if kill.ids or kill.tasks is None:
                self._channels.tell(wire.RECEIPT, receipt)

    def _look_for_listeners(self) -> None:
        waiting = [a for a in self._attempts.all if a.port and not a.ended and not a.listening]
        if not waiting:
            return
        sockets = ports.listeners()
        heard = [a for a in waiting if a.port in sockets]
        if not heard:
            return
        members = self._census.take()
        for attempt in heard:
            assert attempt.port is not None
            pids = [pid for pid, (_, who) in members.items() if who == attempt.task]
            if ports.holds(pids, sockets[attempt.port]) is not None:
                attempt.listening = True
                self._channels.tell(wire.LISTENING, attempt.facts())

    def _look_at_roster(self) -> None:
        self._census.take()
        if set(self._census.roster) != self._saved_roster:
            self._save()

    def _save(self) -> None:
        self._saved_roster = set(self._census.roster)
        self._state.put(state.collect(self._attempts.all, self._census, self._ending))

    def _look_at_lease(self, now: float) -> None:
        if self._term:
            self._term, self._unguarded = False, True
            self._act_alone("the agent was told to stop")
        if self._ending:
            return
        if not self._attempts and not self._channels and now - self._channels.last_beat > _IDLE:
            self._end("nothing was started")
            return
        silent = now - self._channels.last_beat
        if silent < self._config["lease"]:
            return
        if self._config["on_disconnect"] == "stop":
            self._act_alone(f"no launcher for {silent:.0f} s")
        elif not any(not a.ended for a in self._attempts.all):
            self._end("all tasks have ended")  # kept alive, and nothing is left to keep

    def _act_alone(self, why: str) -> None:
        if self._config["on_disconnect"] == "keep" and not why.startswith("the agent"):
            return
        say(f"acting alone: {why}")
        self._channels.tell(wire.NOTE, {"text": f"the agent ends everything: {why}"})
        self._end(why)
        self._was = why
        self._begin_kill([], None, float(self._config["grace"]))

    def _launcher_died(self) -> None:
        if self._config["local"] and not self._ending:
            self._act_alone("the launcher died")

    def _end(self, why: str) -> None:
        self._ending = why
        self._ending_since = time.monotonic()
