"""Header of a run: its state in one row."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from rich.text import Text
from textual.widget import Widget

from launcher.quantities import age, thousands
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from tui.format import StatusColor, bar, clock, figure
from tui.keys import key_of
from tui.log.hints import known_cause, task_contexts
from tui.outcome import failure_hint, outcome_text, queue_status, receipt_verdict
from tui.widgets.colours import status_colours

from .fit import Part, fit, row_width
from .stage_line import BEFORE, Form, stage_parts

_GAP = "  "
_NEEDED = 4
"""Highest rank of the parts for which the stage line takes its narrow form."""


class RunHeader(Widget):
    """Shows the last snapshot it was given; called each second, it moves its clocks on."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._stalled = 0
        self._trouble = ""
        self._row = Text()

    def show(self, snapshot: Snapshot, stalled: int = 0, trouble: str = "") -> None:
        """Shows a snapshot, how many tasks have stalled, and the newest alert while nothing has
        failed yet."""
        self._snapshot, self._stalled, self._trouble = snapshot, stalled, trouble
        row = self._make()
        if row != self._row:
            self._row = row
            self.refresh()

    def on_resize(self) -> None:
        self._row = self._make()
        self.refresh()

    def render(self) -> Text:
        return self._row

    def _make(self) -> Text:
        if self._snapshot is None or not self.size:
            return Text()
        colours = status_colours(self.app)
        now, width = time.time(), self.size.width
        for form in Form:
            parts = header_parts(self._snapshot, now, colours, partial(key_of, self), form)
            if self._snapshot.state not in (RunPhase.KILLING, RunPhase.ENDED):
                if self._stalled:
                    style = f"bold {colours[StatusColor.BAD]}"
                    parts.insert(1, Part(1, f"! {self._stalled} stalled", style))
                if self._trouble:
                    parts.append(Part(2, self._trouble, f"bold {colours[StatusColor.BUSY]}"))
            if row_width([part for part in parts if part.rank <= _NEEDED], _GAP) <= width:
                break
        return fit(parts, width, _GAP)


def header_parts(
    snapshot: Snapshot,
    now: float,
    colours: dict[StatusColor, str],
    key: Callable[[str], str],
    form: Form = Form.FULL,
) -> list[Part]:
    """The parts of the header, ranked by importance; `key` gives the displayed key of a command,
    `form` is that of the stage line."""
    bad, busy = (f"bold {colours[m]}" for m in (StatusColor.BAD, StatusColor.BUSY))
    parts = [Part(7, snapshot.name, "bold")]
    if snapshot.state is RunPhase.KILLING:
        left = max(0.0, (snapshot.kill_deadline or now) - now)
        alive = sum(task.state.live for task in snapshot.tasks)
        text = f"KILL in {left:.0f} s" if left > 0 else "KILL sent"
        if snapshot.allocation is not None and snapshot.allocation.releasing:
            text = f"every agent has answered, waiting for {snapshot.waiting}"
            if not any(task.attempt for task in snapshot.tasks):
                text = f"cancelling {snapshot.allocation.title}: nothing has started"
            return [*parts, Part(0, text, busy)]
        parts.append(Part(0, f"killing all: TERM sent, {text}", bad))
        parts.append(Part(1, f"{alive} of {len(snapshot.tasks)} alive"))
        if left > 0 and snapshot.kill_asked:
            parts.append(Part(2, f"{key('kill_all')} again: KILL now"))
        return parts
    if snapshot.state is RunPhase.ENDED:
        return [*parts, *_ended(snapshot, bad, colours), Part(2, f"{key('leave')} leaves")]
    if queue := queue_status(snapshot, now):
        parts.append(Part(0, queue, busy))
        if snapshot.allocation is not None and snapshot.allocation.advice:
            parts.append(Part(1, snapshot.allocation.advice, bad))
        return [*parts, *stage_parts(snapshot, now, form, colours)]
    stages = stage_parts(snapshot, now, form, colours)
    if snapshot.state in BEFORE:
        parts += [*stages, Part(0, _waiting(snapshot, now, form), busy)]
    else:
        elapsed = clock(now - snapshot.started)
        parts += [Part(6, f"{snapshot.state} {elapsed}"), *stages]
    parts += _first_failure(snapshot, bad)
    parts += _progress(snapshot, now)
    return parts


def _waiting(snapshot: Snapshot, now: float, form: Form) -> str:
    """Text of what the run waits for, and for how long if the stage line does not say that."""
    if not snapshot.waiting:
        return f"{snapshot.state}"
    text = f"waiting for {snapshot.waiting}"
    if form is Form.FULL:
        text = f"{snapshot.state}: {text}"
    if snapshot.waiting_since is not None and (
        form is Form.NARROW or snapshot.state is not RunPhase.STARTING
    ):
        text += f" — {age(now - snapshot.waiting_since)}"
    return text


def _progress(snapshot: Snapshot, now: float) -> list[Part]:
    step, total, rate = snapshot.step, snapshot.total_steps, snapshot.rate
    if step is None:
        return []
    parts = []
    if total:
        share = min(1.0, step / total)
        parts.append(Part(1, f"step {thousands(step)}/{thousands(total)}"))
        parts.append(Part(8, bar(share, 10)))
        parts.append(Part(3, f"{share * 100:.0f} %"))
    else:
        parts.append(Part(1, f"step {thousands(step)}"))
    if snapshot.loss is not None:
        parts.append(Part(5, f"loss {figure(snapshot.loss)}"))
    if rate is not None:
        parts.append(Part(2, f"{figure(rate)} steps/s"))
        if total and rate > 0 and step < total:
            parts.append(Part(3, f"ETA {clock((total - step) / rate)}"))
    return parts


def _first_failure(snapshot: Snapshot, bad: str) -> list[Part]:
    """`first: worker:1 @tf3 failed 1, 4.1 s before worker:0`."""
    failure = snapshot.first_failure
    if failure is None:
        return []
    text = f"first: {failure.task} @{failure.host} {failure.how}"
    later = next((snapshot.task(other) for other in failure.others), None)
    if later is not None and later.ended is not None and later.ended > failure.time:
        text += f", {later.ended - failure.time:.1f} s before {later.id}"
    hint = failure_hint(snapshot, failure)
    if hint is not None:
        text += f" — {hint.kind}"
        if known := known_cause(hint, failure.task, task_contexts(snapshot)):
            text += f": {known}"
    return [Part(0, text, bad)]


def _ended(snapshot: Snapshot, bad: str, colours: dict[StatusColor, str]) -> list[Part]:
    parts = [Part(0, *outcome_text(snapshot, colours))]
    if snapshot.ended is not None:
        parts.append(Part(3, f"after {clock(snapshot.ended - snapshot.started)}"))
    parts += _first_failure(snapshot, bad)
    if snapshot.receipt is not None:
        parts.append(Part(1 if snapshot.clean else 0, *receipt_verdict(snapshot, colours)))
    if snapshot.step is not None:
        parts += [part for part in _progress(snapshot, snapshot.started) if part.rank in (1, 5)]
    return parts
