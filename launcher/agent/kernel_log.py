"""The kernel's log: whom the kernel has killed for want of memory, and Xid errors of GPUs.

Its last lines are read, where the account may (`dmesg_restrict`).
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Callable, Iterable

_READ_ALL = 3
_BYTES = 64 * 1024
_OF_KERNEL = tuple(b"%d" % level for level in range(8))
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's number of the namespace whose process ids its log has."""
_MOST_XIDS = 8
_BUS = r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})"
_XID = r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{7,20})(?: GPU-I:\w{1,4})?\): (\d{1,4})"


def last_lines() -> list[str]:
    """The last lines that the kernel has written; none where they may not be read."""
    text = ctypes.create_string_buffer(_BYTES)
    length = ctypes.CDLL(None).klogctl(_READ_ALL, text, _BYTES)
    return own_lines(text.raw[: max(0, length)])


def own_lines(log: bytes) -> list[str]:
    """The lines of a log without those of programs, which may write into it (`/dev/kmsg`): they
    have another facility than the kernel's, 0."""
    lines = []
    for line in log.splitlines():
        level, _, rest = line.partition(b">")
        if level[:1] == b"<" and level[1:] in _OF_KERNEL:
            lines.append(rest.decode(errors="replace"))
    return lines


def killed_for_memory(
    proc: str = "/proc", lines: Callable[[], Iterable[str]] = last_lines
) -> frozenset[int]:
    """The processes that the kernel has killed for want of memory; none where our processes have
    other numbers than in its log."""
    try:
        if os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE:
            return frozenset()
    except OSError:
        return frozenset()
    found = set()
    for line in lines():
        before, killed, after = line.partition("Killed process ")
        if killed and "ut of memory" in before:
            number = after.partition(" ")[0]
            if number.isascii() and number.isdigit() and len(number) < 10:
                found.add(int(number))
    return frozenset(found)


class XidErrors:
    """Xid errors in the log since the first look."""

    def __init__(self, lines: Callable[[], list[str]] = last_lines) -> None:
        self._lines = lines
        self._newest: str | None = None
        """The last line of the look before."""
        self._found: dict[str, list[int]] = {}

    def read(self) -> dict[str, list[int]]:
        """The last numbers that were reported of each GPU, by its place on the bus."""
        lines = self._lines()
        if self._newest is not None:
            begun = len(lines)
            while begun and lines[begun - 1] != self._newest:
                begun -= 1
            for line in lines[begun:]:
                self._take(line)
        self._newest = lines[-1] if lines else self._newest or ""
        return {bus: list(numbers) for bus, numbers in self._found.items()}

    def _take(self, line: str) -> None:
        found = re.search(_XID, line)
        if found and (bus := bus_in(found[1])):
            numbers = self._found.setdefault(bus, [])
            if int(found[2]) not in numbers:
                numbers.append(int(found[2]))
                del numbers[:-_MOST_XIDS]


def bus_in(text: str) -> str:
    """The first place on the PCI bus that a text names; empty where there is none. The domain has
    four digits or eight."""
    found = re.search(_BUS, text)
    return f"{int(found[1], 16):04x}:{found[2]}:{found[3]}".lower() if found else ""
