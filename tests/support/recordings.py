"""Recorded output of programs that rewrite lines, and what a terminal shows of it."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "recordings"
NAMES = sorted(path.stem for path in FOLDER.glob("*.bytes"))


def written(name: str) -> bytes:
    """The bytes that a program wrote."""
    return (FOLDER / f"{name}.bytes").read_bytes()


def seen(name: str) -> list[str]:
    """The lines that a terminal shows of them."""
    return trimmed((FOLDER / f"{name}.txt").read_text().split("\n"))


def trimmed(lines: list[str]) -> list[str]:
    """Lines without blanks and empty lines at their ends, which a terminal cannot tell."""
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines
