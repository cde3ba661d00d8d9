"""Formatting of sizes, ages, counts and lists, the same in every message and on every screen."""

from __future__ import annotations

from collections.abc import Sequence


def thousands(number: float) -> str:
    """`12,340`: whole numbers in groups of three."""
    return f"{int(number):,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 host`, `3 hosts`, `2 processes`."""
    return f"{thousands(number)} {noun if number == 1 else plural or noun + 's'}"


def age(seconds: float) -> str:
    """Time since a moment: `2 s`, `4 min`, `3 h`, `12 d`; beyond ten seconds in steps of five,
    which is calmer to look at."""
    if seconds < 10:
        return f"{max(0, int(seconds))} s"
    if seconds < 100:
        return f"{int(seconds / 5) * 5} s"
    if seconds < 6000:
        return f"{int(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{int(seconds / 3600)} h"
    return f"{int(seconds / 86400)} d"


def span(seconds: float) -> str:
    """A span that somebody has set, exactly: `4 s`, `10 min`, `1 h 30 min`, `24 h`, `3 days`."""
    whole = round(seconds, 1)
    if whole < 120 and whole % 60:
        return f"{whole:g} s"
    days, rest = divmod(int(whole), 86400)
    if days > 1 and not rest:
        return f"{days} days"
    hours, minutes, left = int(whole) // 3600, int(whole) // 60 % 60, int(whole) % 60
    parts = ((hours, "h"), (minutes, "min"), (left, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def clock(seconds: float) -> str:
    """A span as a clock: `0:23`, `1:02:03`."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def size(count: float) -> str:
    """Bytes: `812 B`, `64 KB`, `1.2 GB`."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


def and_list(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))
