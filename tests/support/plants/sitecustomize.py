"""Plants trouble in the reader of each launcher process that has this folder on its PYTHONPATH.

`PLANT` says what happens to whoever looks at anything; `PLANT_IN` names the kinds of looks, all
where it is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


def fault() -> NoReturn:
    """Fails as a rule does that nobody tried on such a text."""
    raise ValueError("boom in a look")


def spin() -> NoReturn:
    """Never comes to an end."""
    while True:
        pass


def hang() -> NoReturn:
    """Waits for what never comes, and takes no processor time."""
    import time

    while True:
        time.sleep(1000)


def stop() -> None:
    """Stands still: no timer of its own ends it."""
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)


def flood() -> NoReturn:
    """Prints without end."""
    while True:
        os.write(1, b"a line of a flood\n" * 4096)


def fill() -> list[bytes]:
    """Takes all memory."""
    taken = []
    while True:
        taken.append(b"x" * (64 << 20))


def die() -> None:
    """Crashes as a library does."""
    os.abort()


def ramble() -> Any:
    """Answers at such length that nobody may read it."""
    reader = vars(sys.modules["__main__"])
    reader["message"] = lambda data: (1 << 31).to_bytes(4, "big") + b"A" * (4 << 20)


PLANTS: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (fault, spin, hang, stop, flood, fill, die, ramble)
}
ENDING = frozenset(PLANTS) - {"fault", "fill"}
"""Plants that end the reader, and so the looks of that kind."""


def begin(argv: Sequence[str]) -> None:
    """Plants what is to be planted in a process with these arguments."""
    if "PLANT" not in os.environ or "launcher.reading.reader" not in argv:
        return
    from launcher.reading import looks

    act = PLANTS[os.environ["PLANT"]]
    wanted = os.environ.get("PLANT_IN", " ".join(looks.Look)).split()
    for kind in vars(looks).values():
        if isinstance(kind, type) and getattr(kind, "look", None) in wanted:
            _plant(kind, act)


def _plant(kind: Any, act: Callable[[], Any]) -> None:
    real = kind.answer

    def answer(self: Any) -> Any:
        act()
        return real(self)

    kind.answer = answer


begin(sys.orig_argv)
