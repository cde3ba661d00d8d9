"""Supervision of a run's launcher processes by one of its clients: a pure state machine.

The client says what it sees, ten times a second; `step` says what to do. Clocks, locks, processes
and sockets are the client's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from ..frozen import frozen
from ..run.snapshot import RunView
from ..run.states import CONNECT_SECONDS, RunPhase

ALONE_SECONDS = 1.0
"""Time without a launcher process after which the run counts as unsupervised."""
MOST_RESTARTS = 3
"""Launcher processes of a run that are started in the place of those that have died, within
`RESTART_SECONDS`; the next one only ends the run."""
RESTART_SECONDS = 600.0
RETRY_SECONDS = 30.0
"""Time after the loss of a launcher process in which the next one is tried again that cannot be
started: the machine has too many processes, or the client too many open files."""
HEARD_SECONDS = 3.0
"""Time for a launcher process to act on a kill before another one takes the run over."""
START_SECONDS = 10 * HEARD_SECONDS
"""Time for a launcher process that has just been started to act on a kill."""
KILL_SECONDS = 20.0
"""Time for a kill beyond its deadline before another launcher process takes the run over."""


class ClientState(Enum):
    """A client's launcher process.

                     ┌─────────────── started ───────────────┐
                     ▼                                       │
        ┌────── STARTING ── says something ─► FOLLOWING      │
        │                                     │      ▲       │
        └─ connection ends ─┐ connection ends ┘      │       │
                            ▼                        │       │
                        SEARCHING ─── connected ─────┘       │
                        │   │   ▲                            │
        the run's end ──┤   │   └─ another client's ─┐       │
        is on record,   ▼   │                        │       │
        or its folder   │   │                        │       │
        is gone         ▼   │                        │       │
                      OVER  └─ none for a second ─► RESTARTING ─► ALONE
                               and the lock free            too many have died,
                                                            or none can be started

    A kill that is not acted on leads from STARTING, FOLLOWING and SEARCHING to STARTING, once:
    another launcher process takes the run over.
    """

    STARTING = auto()
    """A launcher process that was started here has not said anything yet."""
    FOLLOWING = auto()
    """A launcher process is connected."""
    SEARCHING = auto()
    """None is connected; another client may be starting one."""
    RESTARTING = auto()
    """The launcher process has died; the next one is to be started."""
    ALONE = auto()
    """No launcher process stays alive. Nothing follows."""
    OVER = auto()
    """The run has ended. Nothing follows."""


class Action(Enum):
    """What a client is to do."""

    WAIT = auto()
    """Nothing but to read what comes."""
    CONNECT = auto()
    """Connect to the launcher process that listens, if there is one."""
    START = auto()
    """Take the lock, and start a launcher process that takes the run up."""
    START_LAST = auto()
    """Take the lock, and start a launcher process that only ends the run."""
    TAKE_OVER = auto()
    """Kill the launcher process that holds the lock, and start one that takes the run up."""
    READ_END = auto()
    """Read the run's end from its record."""
    LEAVE = auto()
    """Say that the run's folder has been removed: no launcher process can take the run up."""
    GIVE_UP = auto()
    """Say that no launcher process stays alive."""


class Tried(Enum):
    """What became of the last action."""

    NOTHING = auto()
    """Nothing: there is no other connection than before."""
    CONNECTED = auto()
    """A launcher process that was there is connected."""
    STARTED = auto()
    """A launcher process was started, and is connected."""
    FOLLOWED = auto()
    """Another client was quicker to take the lock."""
    FAILED = auto()
    """No process could be started."""


_STATE_AFTER = {
    Tried.CONNECTED: ClientState.FOLLOWING,
    Tried.STARTED: ClientState.STARTING,
    Tried.FOLLOWED: ClientState.SEARCHING,
}
"""States to which actions lead that have done something."""


class LinkState(Enum):
    """The connection to a launcher process."""

    GONE = auto()
    SILENT = auto()
    """Nothing has come over it yet."""
    SPEAKS = auto()


class LockState(Enum):
    """The lock that a living launcher process of the run holds."""

    FREE = auto()
    NEW = auto()
    """The holder has not written down who it is: it begins."""
    HELD = auto()
    UNKNOWN = auto()
    """The file system does not say."""


@frozen
class Seen:
    """What a client sees of its run."""

    run: RunView
    """The run as a launcher process has told it last."""
    link: LinkState
    tried: Tried
    lock: Callable[[], LockState]
    """Looks at the lock, which takes a while."""
    over: Callable[[], bool]
    """Looks whether the run's end is on record, which takes a while."""
    gone: Callable[[], bool] = bool
    """Looks whether the run's folder has been removed."""
    stopped: Callable[[], bool] = bool
    """Looks whether the launcher process has been stopped, as the kernel says."""
    kill: bool = False
    """The client has asked for a kill."""
    connecting: bool = False
    """A host is being connected to: its part of a kill takes longer."""
    wall: float = 0.0
    """The time by the wall clock, by which launcher processes name deadlines."""


class Supervision:
    """One client's supervision of the launcher processes of its run."""

    def __init__(self, state: ClientState) -> None:
        self.state = state
        self.deaths = 0
        """Launcher processes that have died, as far as the client has noticed."""
        self.recent = 0
        """Launcher processes that have died within `RESTART_SECONDS` of the last one, that
        included."""
        self._died: deque[float] = deque(maxlen=MOST_RESTARTS + 2)
        """When the last launcher processes have died."""
        self._lost_at: float | None = None
        """Since when there has been no launcher process; None before the first look."""
        self._kill_since: float | None = None
        """Since when the present launcher process could have acted on the kill."""
        self._taking_over = False
        """The last action was to take the run over."""
        self._taken_over = False
        """The run was taken over for the kill: each launcher process begins the kill anew."""
        self._named: float | None = None
        """The deadline of the kill that was named last, by the wall clock."""
        self._deadline = 0.0
        """The deadline of the kill by the clock of `step`, which nobody sets."""

    def step(self, now: float, seen: Seen) -> Action:
        """The next action; `now` is the time by a clock that nobody sets."""
        self._enter(now, seen)
        late = self._kill_is_late(now, seen)
        if self.state is ClientState.SEARCHING and not late:
            action = self._search(now, seen)
        elif self.state is ClientState.RESTARTING:
            action = self._restart(now, seen)
        else:
            action = Action.TAKE_OVER if late else Action.WAIT
        self._taking_over = action is Action.TAKE_OVER
        return action

    def end(self) -> None:
        """The run has ended, or its client cannot go on."""
        self.state = ClientState.OVER

    def _enter(self, now: float, seen: Seen) -> None:
        """Changes the state by what became of the last action, and of the connection."""
        if self.state in (ClientState.ALONE, ClientState.OVER):
            return
        if seen.tried in _STATE_AFTER:
            self.state = _STATE_AFTER[seen.tried]
            self._taken_over |= self._taking_over
            self._lost_at = None
            self._kill_since = now if seen.kill else None
        if self.state in (ClientState.STARTING, ClientState.FOLLOWING):
            if seen.link is LinkState.GONE:
                self.state = ClientState.SEARCHING
            elif seen.link is LinkState.SPEAKS:
                self.state = ClientState.FOLLOWING
        if self.state is ClientState.SEARCHING and self._lost_at is None:
            self._lost_at = now

    def _search(self, now: float, seen: Seen) -> Action:
        assert self._lost_at is not None
        if now - self._lost_at <= ALONE_SECONDS or seen.lock() in (LockState.NEW, LockState.HELD):
            return Action.CONNECT
        if seen.over():
            self.state = ClientState.OVER
            return Action.READ_END
        if seen.gone():
            self.state = ClientState.OVER
            return Action.LEAVE
        self.deaths += 1
        self._died.append(now)
        self.recent = sum(now - death < RESTART_SECONDS for death in self._died)
        self.state = ClientState.RESTARTING
        return self._restart(now, seen)

    def _restart(self, now: float, seen: Seen) -> Action:
        assert self._lost_at is not None
        tired = seen.tried is Tried.FAILED and now - self._lost_at >= RETRY_SECONDS
        if tired or self.recent > MOST_RESTARTS + 1:
            self.state = ClientState.ALONE
            return Action.GIVE_UP
        return Action.START if self.recent <= MOST_RESTARTS else Action.START_LAST

    def _kill_is_late(self, now: float, seen: Seen) -> bool:
        """Whether a kill should have been acted on, or come to its end, by now: the launcher
        process stands still, or lets nobody connect."""
        if not seen.kill or self._taken_over or seen.run.state is RunPhase.ENDED:
            return False
        if self.state not in (ClientState.STARTING, ClientState.FOLLOWING, ClientState.SEARCHING):
            return False
        if self._kill_since is None:
            self._kill_since = now
        waited = now - self._kill_since
        if seen.run.kill_deadline != self._named:
            self._named = seen.run.kill_deadline
            self._deadline = now + (self._named or 0.0) - seen.wall
        if seen.tried is Tried.FAILED:
            return False  # the next look is for one that another client has started
        if seen.run.state is not RunPhase.KILLING:
            if waited <= HEARD_SECONDS:
                return False
            return waited > START_SECONDS or not self._begins(seen)
        if seen.run.allocation is not None and seen.run.allocation.releasing:
            return False  # it is carried out, and an engine takes its time
        patience = KILL_SECONDS + CONNECT_SECONDS * seen.connecting
        return waited > patience and now > self._deadline + patience

    def _begins(self, seen: Seen) -> bool:
        """Whether the launcher process has just been started; one that nobody can see gets the
        time, too, but none that has been stopped."""
        if seen.stopped():
            return False
        return self.state is ClientState.STARTING or seen.lock() in (
            LockState.NEW,
            LockState.UNKNOWN,
        )
