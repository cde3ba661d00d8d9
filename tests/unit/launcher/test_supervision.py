"""Supervision of launcher processes by a client: every transition, without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.client.supervision import (
    ALONE_SECONDS,
    HEARD_SECONDS,
    KILL_SECONDS,
    MOST_RESTARTS,
    RESTART_SECONDS,
    RETRY_SECONDS,
    START_SECONDS,
    Action,
    ClientState,
    LinkState,
    LockState,
    Seen,
    Supervision,
    Tried,
)
from launcher.run.snapshot import AllocationView, RunView
from launcher.run.states import CONNECT_SECONDS, Cause, RunPhase

RUNNING = RunView("r", "r", RunPhase.RUNNING, 1.0)
WALL = 1_000_000.0


class Client:
    """What a client sees at a time by its own clock, which stands until `after` moves it."""

    def __init__(self, state: ClientState, run: RunView = RUNNING) -> None:
        self.supervision = Supervision(state)
        self.now = 50.0
        self.run = run
        self.kill = False
        self.lock = LockState.FREE
        self.over = False
        self.gone = False
        self.connecting = False
        self.stopped = False
        self.looks = 0
        """Looks at the lock."""

    def state(self) -> ClientState:
        return self.supervision.state

    def look_at_lock(self) -> LockState:
        self.looks += 1
        return self.lock

    def after(
        self,
        seconds: float,
        link: LinkState = LinkState.GONE,
        *,
        tried: Tried = Tried.NOTHING,
        wall: float | None = None,
    ) -> Action:
        """Lets some time pass, and takes a step; the wall clock goes on as ours, or is set."""
        self.now += seconds
        seen = Seen(
            self.run,
            link,
            tried,
            lock=self.look_at_lock,
            over=lambda: self.over,
            gone=lambda: self.gone,
            stopped=lambda: self.stopped,
            kill=self.kill,
            connecting=self.connecting,
            wall=WALL + self.now if wall is None else wall,
        )
        return self.supervision.step(self.now, seen)

    def die(self) -> Action:
        """Its launcher process dies; returns what is to be done a moment later than a second."""
        assert self.after(0.1) is Action.CONNECT
        return self.after(ALONE_SECONDS + 0.1)


def killing(deadline: float, allocation: AllocationView | None = None) -> RunView:
    """A run that is being killed; the deadline is in seconds of the client's clock."""
    return replace(
        RUNNING,
        state=RunPhase.KILLING,
        cause=Cause.PERSON,
        kill_deadline=WALL + deadline,
        allocation=allocation,
    )


# --- launcher processes that live and die ----------------------------------------------------


def test_a_launcher_process_that_says_something_is_followed() -> None:
    """Given one that was started here, when something has come, then it is followed, and there is
    nothing to do but to read."""
    client = Client(ClientState.STARTING)
    assert client.after(0.1, LinkState.SILENT) is Action.WAIT
    assert client.state() is ClientState.STARTING
    assert client.after(0.1, LinkState.SPEAKS) is Action.WAIT
    assert client.state() is ClientState.FOLLOWING and client.looks == 0


@pytest.mark.parametrize("state", [ClientState.STARTING, ClientState.FOLLOWING])
def test_a_launcher_process_that_dies_is_replaced_after_a_second(state: ClientState) -> None:
    """Given a connection that ends, when a second has passed in which nobody listens and the lock
    is free, then one death is counted, and another is started, which is then followed."""
    client = Client(state)
    assert client.after(0.1) is Action.CONNECT and client.state() is ClientState.SEARCHING
    assert client.after(ALONE_SECONDS) is Action.CONNECT
    assert (client.looks, client.supervision.deaths) == (0, 0)
    assert client.after(0.1) is Action.START
    assert client.state() is ClientState.RESTARTING
    assert client.supervision.deaths == 1
    assert client.after(0.1, LinkState.SILENT, tried=Tried.STARTED) is Action.WAIT
    assert client.state() is ClientState.STARTING
    assert client.after(0.1, LinkState.SPEAKS) is Action.WAIT
    assert client.state() is ClientState.FOLLOWING and client.supervision.deaths == 1


def test_another_connection_within_the_second_is_no_death() -> None:
    """Given a connection that was lost, when the launcher process is connected to again, and that
    is lost, too, then the second begins anew."""
    client = Client(ClientState.FOLLOWING)
    for _ in range(5):
        assert client.after(0.1) is Action.CONNECT
        assert client.after(0.9) is Action.CONNECT
        assert client.after(0.1, LinkState.SILENT, tried=Tried.CONNECTED) is Action.WAIT
        assert client.state() is ClientState.FOLLOWING
    assert client.supervision.deaths == 0


def test_a_connection_that_ends_at_once_counts_from_its_end() -> None:
    """Given a launcher process that accepts and hangs up, when the client looks, then it searches
    for another second."""
    client = Client(ClientState.SEARCHING)
    assert client.after(0.0) is Action.CONNECT
    assert client.after(0.9, LinkState.GONE, tried=Tried.CONNECTED) is Action.CONNECT
    assert client.after(0.9) is Action.CONNECT and client.supervision.deaths == 0


@pytest.mark.parametrize("lock", [LockState.NEW, LockState.HELD])
def test_the_lock_of_another_is_waited_for(lock: LockState) -> None:
    """Given nobody who listens, while somebody holds the lock, then the client tries to connect,
    for however long; when the lock is free, then it starts one."""
    client = Client(ClientState.SEARCHING)
    client.lock = lock
    for _ in range(100):
        assert client.after(10.0) is Action.CONNECT
    client.lock = LockState.FREE
    assert client.after(0.1) is Action.START


def test_a_lock_that_nobody_can_see_is_tried() -> None:
    """Given a file system that does not say who holds the lock, when a second has passed, then one
    is to be started: that says what is wrong."""
    client = Client(ClientState.SEARCHING)
    client.lock = LockState.UNKNOWN
    assert client.die() is Action.START


def test_another_client_that_is_quicker_is_followed() -> None:
    """Given a launcher process that has died, when another client has the lock by then, then this
    one connects, and waits while that lock is held."""
    client = Client(ClientState.FOLLOWING)
    assert client.die() is Action.START
    client.lock = LockState.NEW
    assert client.after(0.1, tried=Tried.FOLLOWED) is Action.CONNECT
    assert client.state() is ClientState.SEARCHING
    assert client.after(5.0) is Action.CONNECT
    assert client.after(0.1, LinkState.SILENT, tried=Tried.CONNECTED) is Action.WAIT
    assert client.state() is ClientState.FOLLOWING and client.supervision.deaths == 1


def test_a_run_whose_end_is_on_record_is_over() -> None:
    """Given a launcher process that has gone, when the record has an end, then that is read, no
    death is counted, and nothing more is done."""
    client = Client(ClientState.FOLLOWING)
    client.over = True
    assert client.die() is Action.READ_END
    assert client.state() is ClientState.OVER and client.supervision.deaths == 0
    client.kill = True
    assert {client.after(60.0) for _ in range(10)} == {Action.WAIT}
    assert client.state() is ClientState.OVER


@pytest.mark.parametrize("run", [RUNNING, replace(RUNNING, state=RunPhase.ENDED), killing(60.0)])
def test_a_run_whose_folder_is_gone_gets_no_other_launcher(run: RunView) -> None:
    """Given a run without its folder, when its launcher process has gone, then no death is counted,
    none is started, and nothing more is done; one that lives is connected to as ever."""
    client = Client(ClientState.FOLLOWING, run)
    client.gone, client.lock = True, LockState.HELD
    assert client.die() is Action.CONNECT
    client.lock = LockState.FREE
    assert client.after(0.1) is Action.LEAVE
    assert client.state() is ClientState.OVER and client.supervision.deaths == 0
    assert {client.after(60.0) for _ in range(10)} == {Action.WAIT}


def test_after_three_restarts_the_next_one_only_ends_the_run() -> None:
    """Given launcher processes that die again and again, when three were started in the place of
    others, then the next one ends the run, and when that dies, too, the client gives up."""
    client = Client(ClientState.FOLLOWING)
    done = []
    for _ in range(MOST_RESTARTS + 2):
        done.append(client.die())
        client.after(0.1, LinkState.SILENT, tried=Tried.STARTED)
    assert done == [*[Action.START] * MOST_RESTARTS, Action.START_LAST, Action.GIVE_UP]
    assert client.supervision.deaths == client.supervision.recent == MOST_RESTARTS + 2
    assert client.state() is ClientState.ALONE
    assert {client.after(60.0) for _ in range(10)} == {Action.WAIT}


def test_deaths_of_long_ago_do_not_count() -> None:
    """Given launcher processes that die with more than ten minutes in between, when many have
    died, then each was followed by another one."""
    client = Client(ClientState.FOLLOWING)
    for count in range(20):
        assert client.die() is Action.START
        assert client.supervision.recent == 1 and client.supervision.deaths == count + 1
        client.after(0.1, LinkState.SPEAKS, tried=Tried.STARTED)
        client.after(RESTART_SECONDS, LinkState.SPEAKS)


def test_the_last_one_stays_the_last_one_while_it_cannot_be_started() -> None:
    """Given a launcher process that is to end the run, when it could not be started at first, then
    that one is tried again."""
    client = Client(ClientState.FOLLOWING)
    for _ in range(MOST_RESTARTS):
        client.die()
        client.after(0.1, LinkState.SILENT, tried=Tried.STARTED)
    assert client.die() is Action.START_LAST
    assert client.after(0.1, tried=Tried.FAILED) is Action.START_LAST


def test_a_machine_that_cannot_start_processes_is_tried_for_half_a_minute() -> None:
    """Given a launcher process that has died, when no other one can be started, then that is tried
    for thirty seconds, as one death; then the client gives up."""
    client = Client(ClientState.FOLLOWING)
    assert client.die() is Action.START
    began = client.now
    while (action := client.after(0.1, tried=Tried.FAILED)) is Action.START:
        assert client.now - began < RETRY_SECONDS
        assert client.supervision.deaths == 1
    assert action is Action.GIVE_UP and client.state() is ClientState.ALONE
    assert client.now - began > RETRY_SECONDS - 3 * ALONE_SECONDS
    assert client.supervision.deaths == 1


def test_a_machine_that_has_room_again_starts_the_next_one() -> None:
    """Given a process that cannot be started for a while, when it can be, then it is followed, and
    the half minute begins anew with the next death."""
    client = Client(ClientState.FOLLOWING)
    for _ in range(2):
        assert client.die() is Action.START
        assert client.after(RETRY_SECONDS / 2, tried=Tried.FAILED) is Action.START
        assert client.after(0.1, LinkState.SPEAKS, tried=Tried.STARTED) is Action.WAIT
        assert client.state() is ClientState.FOLLOWING


def test_a_client_that_ends_does_nothing_more() -> None:
    """Given a client whose launcher process has said that the run has ended, when the connection
    ends, then nobody is looked for."""
    client = Client(ClientState.FOLLOWING)
    client.supervision.end()
    assert {client.after(60.0) for _ in range(10)} == {Action.WAIT}
    assert client.state() is ClientState.OVER and client.looks == 0


@pytest.mark.parametrize(
    "state", [ClientState.STARTING, ClientState.FOLLOWING, ClientState.SEARCHING]
)
def test_a_clock_that_stands_still_starts_and_kills_nobody(state: ClientState) -> None:
    """Given a clock that does not move, when a client looks again and again, then no time has
    passed: it neither counts deaths nor takes the run over."""
    client = Client(state)
    client.kill = True
    for _ in range(1000):
        assert client.after(0.0) is Action.CONNECT
    assert client.supervision.deaths == 0


# --- kills -----------------------------------------------------------------------------------


def following(run: RunView = RUNNING) -> Client:
    """A client that has asked for a kill of a run whose launcher process has said something."""
    client = Client(ClientState.FOLLOWING, run)
    client.kill, client.lock = True, LockState.HELD
    assert client.after(0.0, LinkState.SPEAKS) is Action.WAIT
    return client


def test_a_kill_that_is_not_acted_on_is_given_to_another_one() -> None:
    """Given a launcher process that reads and does nothing, when three seconds have passed since
    the kill, then another one takes the run over."""
    client = following()
    assert client.after(HEARD_SECONDS, LinkState.SPEAKS) is Action.WAIT and client.looks == 0
    assert client.after(0.1, LinkState.SPEAKS) is Action.TAKE_OVER
    assert client.after(0.1, LinkState.SILENT, tried=Tried.STARTED) is Action.WAIT
    assert client.state() is ClientState.STARTING


def test_a_kill_takes_over_from_one_that_lets_nobody_connect() -> None:
    """Given a lock that is held, and nobody who can be connected to, when a kill has waited for
    three seconds, then another one takes the run over."""
    client = Client(ClientState.SEARCHING)
    client.kill, client.lock = True, LockState.HELD
    assert client.after(0.0) is Action.CONNECT
    assert client.after(HEARD_SECONDS) is Action.CONNECT
    assert client.after(0.1) is Action.TAKE_OVER


@pytest.mark.parametrize(
    ("state", "lock", "stopped", "seconds"),
    [
        (ClientState.STARTING, LockState.HELD, False, START_SECONDS),
        (ClientState.FOLLOWING, LockState.NEW, False, START_SECONDS),
        (ClientState.FOLLOWING, LockState.UNKNOWN, False, START_SECONDS),
        (ClientState.STARTING, LockState.HELD, True, HEARD_SECONDS),
        (ClientState.STARTING, LockState.NEW, True, HEARD_SECONDS),
        (ClientState.FOLLOWING, LockState.HELD, True, HEARD_SECONDS),
        (ClientState.FOLLOWING, LockState.NEW, True, HEARD_SECONDS),
    ],
)
def test_a_launcher_process_that_begins_has_longer(
    state: ClientState, lock: LockState, stopped: bool, seconds: float
) -> None:
    """Given a launcher process that has not said anything, or not who it is, when a kill waits for
    it, then thirty seconds pass before another one takes the run over; one that the kernel calls
    stopped does not begin, and has no longer than one that has begun."""
    client = Client(state)
    client.kill, client.lock, client.stopped = True, lock, stopped
    assert client.after(0.0, LinkState.SILENT) is Action.WAIT
    assert client.after(seconds, LinkState.SILENT) is Action.WAIT
    assert client.after(0.1, LinkState.SILENT) is Action.TAKE_OVER


def test_each_new_launcher_process_has_its_time_for_the_kill() -> None:
    """Given a kill that is sent again to the launcher process that another client has started,
    when that is connected to, then the three seconds begin anew."""
    client = following()
    client.after(2.0, LinkState.SPEAKS)
    assert client.after(0.1) is Action.CONNECT
    assert client.after(0.5, LinkState.SILENT, tried=Tried.CONNECTED) is Action.WAIT
    assert client.after(HEARD_SECONDS, LinkState.SPEAKS) is Action.WAIT
    assert client.after(0.1, LinkState.SPEAKS) is Action.TAKE_OVER


def test_a_kill_that_lasts_takes_the_run_over_once() -> None:
    """Given a run that was taken over for a kill, when the next launcher process is as late, then
    nobody takes over again: each one begins the kill anew, and a slow host would never have its
    time."""
    client = following(killing(0.0))
    assert client.after(KILL_SECONDS + 60.0, LinkState.SPEAKS) is Action.TAKE_OVER
    client.after(0.1, LinkState.SPEAKS, tried=Tried.STARTED)
    assert {client.after(3600.0, LinkState.SPEAKS) for _ in range(10)} == {Action.WAIT}


def test_one_that_was_taken_over_by_another_client_counts() -> None:
    """Given a launcher process that stands still, when another client was quicker to take its lock,
    then this one connects to the next, and does not take over again."""
    client = following()
    assert client.after(HEARD_SECONDS + 0.1, LinkState.SPEAKS) is Action.TAKE_OVER
    assert client.after(0.1, tried=Tried.FOLLOWED) is Action.CONNECT
    assert client.state() is ClientState.SEARCHING
    client.after(0.1, LinkState.SPEAKS, tried=Tried.CONNECTED)
    assert {client.after(3600.0, LinkState.SPEAKS) for _ in range(10)} == {Action.WAIT}


def test_a_take_over_that_fails_is_tried_again() -> None:
    """Given a machine that cannot start a process, when a run is to be taken over, then it is tried
    again, and between two tries the client looks whether another one can be connected to."""
    client = Client(ClientState.SEARCHING)
    client.kill, client.lock = True, LockState.HELD
    client.after(0.0)
    assert client.after(HEARD_SECONDS + 0.1) is Action.TAKE_OVER
    assert client.after(0.1, tried=Tried.FAILED) is Action.CONNECT
    assert client.after(0.1) is Action.TAKE_OVER


def test_a_launcher_process_that_dies_under_a_kill_is_replaced() -> None:
    """Given a kill, when the launcher process dies, then the next one is started as ever, and has
    its time to begin."""
    client = following()
    client.lock = LockState.FREE
    assert client.die() is Action.START
    assert client.after(0.1, LinkState.SILENT, tried=Tried.STARTED) is Action.WAIT
    assert client.after(START_SECONDS / 2, LinkState.SILENT) is Action.WAIT


@pytest.mark.parametrize(
    ("deadline", "connecting", "seconds"),
    [
        pytest.param(50.0 + 100.0, False, 100.0 + KILL_SECONDS, id="its grace and longer"),
        pytest.param(0.0, False, KILL_SECONDS, id="a deadline of long ago"),
        pytest.param(50.0, True, KILL_SECONDS + CONNECT_SECONDS, id="a host is being connected to"),
    ],
)
def test_a_kill_that_is_carried_out_has_its_time(
    deadline: float, connecting: bool, seconds: float
) -> None:
    """Given a kill that is carried out, when twenty seconds have passed since its deadline or its
    order, and a minute more where a host is being connected to, then another one takes it over."""
    client = following(killing(deadline))
    client.connecting = connecting
    assert client.after(seconds, LinkState.SPEAKS) is Action.WAIT
    assert client.after(0.1, LinkState.SPEAKS) is Action.TAKE_OVER


def test_an_engine_that_takes_its_nodes_back_is_waited_for() -> None:
    """Given a kill that is done but for the engine's job, when that takes long, then nobody takes
    the run over."""
    releasing = AllocationView("engine", "7", releasing=True)
    client = following(killing(50.0, allocation=releasing))
    assert {client.after(600.0, LinkState.SPEAKS) for _ in range(10)} == {Action.WAIT}


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_wall_clock_that_is_set_takes_no_grace_from_a_kill(jump: float) -> None:
    """Given a deadline that was named by the wall clock, when that clock is set by a day, then the
    kill keeps its grace of a thousand seconds, and no more."""
    client = following(killing(50.0 + 1000.0))
    for _ in range(10):
        set_to = WALL + client.now + 100.0 + jump
        assert client.after(100.0, LinkState.SPEAKS, wall=set_to) is Action.WAIT
    assert client.after(KILL_SECONDS + 0.1, LinkState.SPEAKS, wall=WALL) is Action.TAKE_OVER


def test_a_deadline_that_is_named_later_counts() -> None:
    """Given a kill whose grace is longer than was named first, when the launcher process names the
    later deadline, then that one counts."""
    client = following(killing(60.0))
    client.run = killing(500.0)
    assert client.after(KILL_SECONDS + 60.0, LinkState.SPEAKS) is Action.WAIT
    assert client.after(500.0, LinkState.SPEAKS) is Action.TAKE_OVER


def test_a_run_that_has_ended_is_never_taken_over() -> None:
    """Given a run whose results are still being brought, when a kill is asked for, then nobody
    takes the run over."""
    client = following(replace(RUNNING, state=RunPhase.ENDED))
    assert {client.after(600.0, LinkState.SPEAKS) for _ in range(10)} == {Action.WAIT}


def test_nobody_is_killed_without_a_kill() -> None:
    """Given a launcher process that stands still, while nobody has asked for a kill, then it is
    left alone."""
    client = Client(ClientState.FOLLOWING)
    client.lock = LockState.HELD
    assert {client.after(600.0, LinkState.SPEAKS) for _ in range(10)} == {Action.WAIT}
    assert client.looks == 0
