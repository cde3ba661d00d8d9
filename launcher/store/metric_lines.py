"""Metric lines in logs: the step, the loss and whatever else a line names.

Works for any script: `figures` knows how the field's programs tell their progress; a cluster file
may give a pattern of its own. Only the last part of a large chunk is looked at: under a flood of
hundreds of thousands of lines a second the newest figures count, not all of them, and of a line
only its first 4 KiB. A line is looked at without escape sequences, and
each of its versions where it is rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..cluster.patterns import compile_pattern
from ..lines import LINE_BYTES, versions
from .figures import LIKELY, Figures, FormRank, figures_of, is_epoch
from .metrics import Point

LOOK_BYTES = 32 * 1024
_MOST_LINES = 64
_MOST_LINES_OF_FLOOD = 8
"""Lines of a whole chunk of `LOOK_BYTES` that are read: the last ones."""
_MOST_FORMS = 32
_SILENT = 20
"""Times the usual distance of two lines after which a form has ended, and another may follow."""
_AT_LEAST = 30.0
_ALIVE_SECONDS = 1.0
"""Between two points without figures, which say that something moves."""


class Extractor:
    """Finds the metric lines in one task's log bytes, chunk after chunk.

    A line cut in two by the end of a chunk is put together again. `rate` is global steps a
    second between the first and the last of the last few points.
    """

    def __init__(self, pattern: str | None = None) -> None:
        """`pattern` is the cluster file's own.

        Raises:
            ValueError: the pattern is no regular expression.
        """
        self._pattern = None if pattern is None else compile_pattern(pattern)
        self._progress = _TrainingForm()
        self._rest = b""
        self._recent: list[tuple[float, float]] = []

    def feed(self, data: bytes, now: float) -> Iterator[Point]:
        """Yields a point for each metric line that has become whole. One without values says that
        the task works at something that is not the training, such as an evaluation."""
        text = (self._rest + data[-LOOK_BYTES:])[-LOOK_BYTES:]
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._rest = text[cut:][:LINE_BYTES]
        for values in self._values(text[:cut], now, flood=len(data) >= LOOK_BYTES):
            if "step" in values:
                recent = self._recent[-7:]
                fell = bool(recent) and values["step"] < recent[-1][1]
                self._recent = [*([] if fell else recent), (now, values["step"])]
            yield Point(now, values)

    @property
    def rate(self) -> float | None:
        """Global steps a second over the last few points; None before there are two."""
        if len(self._recent) < 2:
            return None
        (began, first), (ended, last) = self._recent[0], self._recent[-1]
        return (last - first) / (ended - began) if ended > began else None

    def _values(self, text: bytes, now: float, *, flood: bool) -> Iterator[dict[str, float]]:
        if self._pattern is not None:
            found_some = False
            for match in self._pattern.finditer(versions(text)):
                values = _groups(match)
                if values:
                    found_some = True
                    yield values
            if found_some:
                return
        if not LIKELY.search(text):
            return
        for line in _last_likely(text, _MOST_LINES_OF_FLOOD if flood else _MOST_LINES):
            figures = figures_of(line)
            if figures is None:
                if is_epoch(line):
                    self._progress.begin_epoch()
                continue
            if self._pattern is not None:
                found = self._progress.works(figures, now)
            else:
                found = self._progress.take(figures, now)
            if found is not None:
                if self._progress.changed:
                    self._recent = []
                yield found


def _last_likely(text: bytes, most: int) -> list[bytes]:
    """The last lines of a text that may have figures, each version of a line as one."""
    likely: list[bytes] = []
    for line in reversed(text.split(b"\n")):
        for version in reversed(versions(line).split(b"\n")):
            if LIKELY.search(version):
                likely.append(version)
                if len(likely) == most:
                    return likely[::-1]
    return likely[::-1]


@dataclass
class _LineForm:
    """Lines of one form that a task has printed."""

    rank: FormRank
    step: int | None = None
    total: int | None = None
    moved_at: float = 0.0
    pause: float = 0.0
    """Seconds between the last two steps."""
    is_none: bool = False
    """What stands where a step would is none: a number that stays while the total changes."""

    again: bool = False
    """A bar of Keras has begun anew without a new epoch: that of an evaluation as long as it. Where
    it does so once more, the lines that tell of epochs were not seen."""

    trained: bool = False
    """A loss was told beside it: it is no bar of data."""

    def counts(self) -> dict[str, float]:
        """The step that it has come to, and the total."""
        counts = {"step": self.step, "total": self.total}
        return {name: count for name, count in counts.items() if count is not None}

    @property
    def ended(self) -> bool:
        return self.total is not None and self.step == self.total


class _TrainingForm:
    """Decides which of a task's forms of lines is its training.

    The one that tells most; of two alike the first, until it has come to its total or has been
    silent for long. So a bar of data that are being prepared gives way to the training's, and a bar
    of an evaluation does not take its place. A loss is taken from another form where this one has
    none.
    """

    def __init__(self) -> None:
        self._forms: dict[str, _LineForm] = {}
        self._chosen = ""
        self._alive_at = 0.0
        self._trains = False
        """A line has told of a training: what could be anything else's counts from then on."""
        self._tells_epochs = False
        """The program says when an epoch begins."""
        self._new_epoch = False
        """An epoch has begun since the last line that was taken."""
        self.changed = False
        """The last line that was taken is of another form than those before it."""

    def begin_epoch(self) -> None:
        """Takes note of a line that begins an epoch."""
        self._new_epoch = self._trains = self._tells_epochs = True

    def take(self, figures: Figures, now: float) -> dict[str, float] | None:
        """The figures of a line that count. Empty: it shows that the task works; None: nothing."""
        self.changed = False
        if figures.rank is FormRank.ASIDE:
            return self.works(figures, now)
        first = not self._trains and not figures.weak
        self._trains |= first
        form, moved = self._follow(figures, now)
        chosen = self._forms.get(self._chosen)
        has_step = figures.step is not None and not form.is_none
        if has_step and form is not chosen and self._follows(chosen, form, figures, now):
            self.changed, self._chosen, chosen = bool(self._chosen), figures.form, form
        if form.again:
            return self._moves(now, moved)
        if form is chosen:
            self._new_epoch = False
            if figures.unsure and form.is_none:  # it fell: the number is that of a line before
                return self._moves(now, moved)
        values: dict[str, float] = {}
        if has_step and figures.step is not None and form is chosen:
            values["step"] = figures.step
            if figures.total is not None:
                values["total"] = figures.total
        if figures.loss is not None and (
            form is chosen or chosen is None or chosen.rank < FormRank.SUMMARY
        ):
            values["loss"] = figures.loss
            if chosen is not None:
                chosen.trained = True
            if first and form is not chosen and chosen is not None and not chosen.ended:
                values.update(chosen.counts())
        return (self._trains and values) or self._moves(now, moved)

    def works(self, figures: Figures, now: float) -> dict[str, float] | None:
        """No figures where a line shows that the task works; None where it does not, or one has
        done so just now."""
        _, moved = self._follow(figures, now)
        return self._moves(now, moved)

    def _moves(self, now: float, moved: bool) -> dict[str, float] | None:
        if not moved or 0 <= now - self._alive_at < _ALIVE_SECONDS:
            return None
        self._alive_at = now
        return {}

    def _follow(self, figures: Figures, now: float) -> tuple[_LineForm, bool]:
        """Records a line; whether it shows that the task works."""
        form = self._forms.get(figures.form)
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                oldest = min(self._forms, key=lambda name: self._forms[name].moved_at)
                del self._forms[oldest]
            # Before it has grown, a number that may be a rank's is none.
            form = _LineForm(figures.rank, is_none=figures.unsure)
            self._forms[figures.form] = form
            form.step, form.total, form.moved_at = figures.step, figures.total, now
            return form, True
        if figures.step is None:
            return form, True
        fell = figures.step < (form.step or 0)
        if figures.form.startswith("keras") and (fell or self._new_epoch):
            form.again = fell and not form.again and self._tells_epochs and not self._new_epoch
        if figures.unsure:
            form.is_none = figures.step <= (form.step or 0) and (form.is_none or figures.step > 0)
        elif figures.total != form.total and figures.step == form.step:
            form.is_none = True
        form.rank = max(form.rank, figures.rank)
        moved = figures.step != form.step
        if moved:
            form.pause, form.moved_at = now - form.moved_at, now
        form.step, form.total = figures.step, figures.total
        return form, moved

    def _follows(
        self, chosen: _LineForm | None, form: _LineForm, figures: Figures, now: float
    ) -> bool:
        """A form takes the place of the one before it."""
        if form.ended and figures.rank <= FormRank.BAR:
            return False  # seen for the first time at its end: nothing of it is to come
        if chosen is None or form.rank > chosen.rank or chosen.is_none:
            return True
        if chosen.trained and form.rank <= FormRank.BAR:
            return False
        keras = self._chosen.startswith("keras") and figures.form.startswith("keras")
        if chosen.ended and form.rank >= min(chosen.rank, FormRank.STEP):
            if self._new_epoch or not keras:
                return True
        return now - chosen.moved_at > max(_AT_LEAST, _SILENT * chosen.pause)


def _groups(match: Any) -> dict[str, float]:
    """The figures that a pattern's groups name; what is no number, and a step that is none, is left
    out."""
    values = {}
    for raw, text in match.groupdict().items():
        name = raw.decode(errors="replace")
        try:
            value = float(text) if text is not None else math.nan
        except ValueError:
            continue
        if text is not None and (math.isfinite(value) or name not in ("step", "total")):
            values[name] = value
    return values
