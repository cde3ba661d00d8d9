"""The machine on which a run was launched, and whether that is this one: the run's `localhost` is
that machine, wherever its folder is seen."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from ..frozen import frozen
from ..paths import read_small
from ..printable import printable
from .living_runs import this_boot

_LONGEST = 256
_UNKNOWN = "another machine or account"


@frozen
class Machine:
    """A machine, as it calls itself when it launches a run."""

    name: str = _UNKNOWN
    """Its host name."""
    ident: str = ""
    """Its id for as long as it has this installation (`/etc/machine-id`)."""
    boot: str = ""
    """The name of the boot; empty where it is not known which machine this is."""
    pids: int = 0
    """The PID namespace: containers of one machine do not see each other's processes."""
    time: float = 0.0
    """When it said so."""

    @classmethod
    def this(cls) -> Machine:
        ident, pids = "", 0
        with suppress(OSError, ValueError):
            ident = read_small("/etc/machine-id", _LONGEST).decode().strip()
        with suppress(OSError):
            pids = os.stat("/proc/self/ns/pid").st_ino
        return cls(os.uname().nodename, ident, this_boot(), pids, time.time())

    @classmethod
    def parse(cls, values: Any) -> Machine:
        """Reads what `record` has written; an unknown one where it is something else."""
        if not isinstance(values, dict):
            return cls()
        texts = [values.get(name) for name in ("name", "id", "boot")]
        pids, launched = values.get("pids"), values.get("time")
        if not all(isinstance(text, str) for text in texts):
            return cls()
        if not isinstance(pids, int) or not isinstance(launched, int | float):
            return cls()
        name, ident, boot = (printable(str(text), _LONGEST) for text in texts)
        return cls(name or _UNKNOWN, ident, boot, pids, launched)

    def record(self) -> dict[str, Any]:
        values = {"name": self.name, "id": self.ident, "boot": self.boot}
        return {**values, "pids": self.pids, "time": self.time}

    @property
    def is_here(self) -> bool:
        """Whether it is this machine. After a boot nothing that it ran is left, and its name and id
        tell that it is the same; but one that had booted before the launch is another of that
        name."""
        here = Machine.this()
        if self.boot == here.boot:
            return self.pids == here.pids
        if not self.boot or (self.name, self.ident) != (here.name, here.ident):
            return False
        return self.time < _booted()


def _booted() -> float:
    """When this machine has booted; now where it does not say."""
    with suppress(OSError, ValueError):
        with open("/proc/stat") as file:
            for line in file:
                if line.startswith("btime "):
                    return float(line.split()[1])
    return time.time()
