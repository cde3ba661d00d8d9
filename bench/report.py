"""Rows of the table of benchmarks: pairs of figures of the same round, medians, targets.

A benchmark is a module with `measure(options)`, which yields rows, and `main`, which gives it to
`run`. Its two sides take turns (A B A B …) after a round that does not count: what else the
machine does falls on both alike, and each ratio is of two figures of one round.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

ROUNDS = 5
T = TypeVar("T")
HEADINGS = ("what", "tfmux", "beside", "ratio", "target")


@dataclass(frozen=True)
class Row:
    """One comparison. The target is one of the ratio where there is something `beside`, else of the
    figures themselves; a row that could not be measured says why in `skipped`."""

    what: str
    unit: str = ""
    ours: tuple[float, ...] = ()
    beside: str = ""
    theirs: tuple[float, ...] = ()
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    skipped: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours to theirs, round by round."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=False)]

    @property
    def missed(self) -> bool:
        """There is a target, and the median does not reach it."""
        figures = self.ratios or self.ours
        if not figures:
            return False
        figure = statistics.median(figures)
        return (self.at_most is not None and figure > self.at_most) or (
            self.at_least is not None and figure < self.at_least
        )

    def cells(self) -> tuple[str, ...]:
        """The row of the table, a cell a column."""
        what = f"{self.what} ({self.note})" if self.note else self.what
        if self.skipped:
            return what, "not measured", self.skipped, "", self._target()
        ours = _with_unit(self.ours, self.unit, spread=not self.theirs)
        beside = f"{self.beside}, {_with_unit(self.theirs, self.unit)}" if self.theirs else "–"
        return what, ours, beside, _spread(self.ratios) if self.theirs else "–", self._target()

    def _target(self) -> str:
        sign, bound = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        if bound is None:
            return "–"
        unit = "" if self.beside else self.unit
        text = f"{sign} {bound:g}{unit if unit in ('', '%') else ' ' + unit}"
        return f"**{text} (missed)**" if self.missed else text


def interleave(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Measures all sides in turn, so many rounds after one that does not count."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, measure in sides.items():
            one = measure()
            if number:
                found[name].append(one)
    return found


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of the table in Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "| " + " | ".join("---" for _ in HEADINGS) + " |"]
    escaped = ([cell.replace("|", "\\|") for cell in row.cells()] for row in rows)
    return lines + ["| " + " | ".join(cells) + " |" for cells in escaped]


def run(
    text: str | None,
    measure: Callable[[argparse.Namespace], Iterable[Row]],
    extend: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """The program of a benchmark: prints its rows as they come, and writes them with `--json`."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="that count; one warms up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    if extend is not None:
        extend(parser)
    options = parser.parse_args()
    rows = []
    for row in measure(options):
        print("  ".join(cell for cell in row.cells() if cell not in ("", "–")), flush=True)
        rows.append(row)
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def loaded(rows: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Rows that were written as JSON."""
    for row in rows:
        yield Row(**{**row, "ours": tuple(row["ours"]), "theirs": tuple(row["theirs"])})


@contextmanager
def own_home() -> Iterator[Path]:
    """A folder for everything that tfmux writes, for as long as a benchmark takes."""
    with tempfile.TemporaryDirectory() as name:
        places = {
            f"XDG_{what}_HOME": f"{name}/{what.lower()}"
            for what in ("DATA", "CONFIG", "STATE", "CACHE")
        }
        with patch.dict(os.environ, {"HOME": name, **places}):
            # An installed program has its modules compiled; else each process compiles them anew.
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            yield Path(name)


def _with_unit(figures: Sequence[float], unit: str, *, spread: bool = False) -> str:
    text = _spread(figures) if spread else _figure(statistics.median(figures))
    return f"{text} {unit}".rstrip()


def _spread(figures: Sequence[float]) -> str:
    """The median, the lowest and the highest."""
    if min(figures) == max(figures):
        return _figure(figures[0])
    return (
        f"{_figure(statistics.median(figures))} ({_figure(min(figures))}–{_figure(max(figures))})"
    )


def _figure(figure: float) -> str:
    """Three significant digits, as a person would write them."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
