"""Stop of a task on TERM or INT in time, whatever TensorFlow is waiting for.

Python runs signal handlers in the main thread only, and never inside a call into TensorFlow, which
may block for as long as another task is missing. So the work has a thread of its own, and the main
thread waits for it or for a signal, and says what the work has been waiting for.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

from trainer.exceptions import TrainerError, reason

_POLL = 0.1
_MARGIN = 0.2  # share of the grace that is left for the exit itself
# Seconds between two checks of whether what is waited for can still come, and how many of them in
# a row must say that it cannot.
_LOST_EVERY = 2.0
_LOST_LOOKS = 5
# Seconds of waiting before the first line about it, and between it and each later one.
_SAY_AFTER = 3.0
_SAY_EVERY = 30.0


class Stop:
    """Whether this task has been told to end, until when it may clean up, what it waits for.

    Attributes:
        worth_waiting: False where ending at once loses nothing, as while waiting for other tasks.
        expected: TERM is the normal end, as for a task that only serves.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._event = threading.Event()
        self._waiting: Callable[[], str] | None = None
        self._lost: Callable[[], str] | None = None
        self._look_at = self._say_at = 0.0
        self._lost_looks = 0
        self.signal = 0
        self.deadline = float("inf")
        self.worth_waiting = self.expected = False

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)

    @contextlib.contextmanager
    def waiting(
        self, text: Callable[[], str], lost: Callable[[], str] | None = None
    ) -> Iterator[None]:
        """Around a call that other tasks may delay: prints `text()` after 3 s, then every 30 s.

        The task ends with what `lost()` says, where it says for 10 s why the call cannot return.
        """
        now, self._lost_looks = time.monotonic(), 0
        self._say_at, self._look_at = now + _SAY_AFTER, now + _LOST_EVERY
        self._waiting, self._lost = text, lost
        try:
            yield
        finally:
            self._waiting = self._lost = None

    def check_waiting(self) -> None:
        """Prints what the work waits for when it is time; called by the main thread.

        Raises:
            TrainerError: What `lost()` says: the call cannot return.
        """
        text, lost, now = self._waiting, self._lost, time.monotonic()
        if text and now > self._say_at and not self.requested:
            line = text()
            if line and self._waiting is text:
                print(line)
                self._say_at = now + _SAY_EVERY
        if lost and now > self._look_at and not self.requested:
            self._look_at = now + _LOST_EVERY
            why = lost()
            self._lost_looks = self._lost_looks + 1 if why else 0
            if why and self._lost is lost and self._lost_looks >= _LOST_LOOKS:
                raise TrainerError(why)

    def request(self, number: int, frame: object = None) -> None:
        """Signal handler: asks the work to end in time; further signals change nothing."""
        if not self.requested:
            self.signal = number
            self.deadline = time.monotonic() + self._grace * (1 - _MARGIN)
            self._event.set()


def run(work: Callable[[Stop], None], grace: float) -> int:
    """Runs `work` in a thread until it ends or, after a signal, the grace nears its end.

    Returns the exit status: 0 when the work was completed or was only to be ended by a signal,
    128 + signal when it was cut short. What `work` raises is raised here.
    """
    stop = Stop(grace)
    _listen(stop)
    failures: list[BaseException] = []

    def target() -> None:
        try:
            work(stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=target, name="work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL)
        # TensorFlow's strategies take TERM for themselves when they connect to their cluster.
        _listen(stop)
        stop.check_waiting()
        if stop.requested and not (stop.worth_waiting and time.monotonic() < stop.deadline):
            break
    if failures and not stop.requested:
        raise failures[0]
    if failures:
        # The other tasks get the same signal: what fails now mostly fails because they left.
        print(f"after signal {stop.signal}: {reason(failures[0])}")
    return 128 + stop.signal if stop.requested and not stop.expected else 0


def _listen(stop: Stop) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.request)
