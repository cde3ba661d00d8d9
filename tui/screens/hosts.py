"""Hosts screen: link, lease and load of each host, and its tasks' share of the load."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from launcher.printable import printable
from launcher.quantities import age, counted, size, thousands
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase
from launcher.session.control import RunControl
from tui.format import STATE_MARKS, StatusColor, bar, status_color
from tui.outcome import queue_status
from tui.widgets.colours import status_colours
from tui.widgets.columns import CellText, Column, Columns, TableLine, indented, wrapped
from tui.widgets.fit import Part, fit
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader

_COLORS = {
    HostState.CONNECTING: StatusColor.BUSY,
    HostState.UP: StatusColor.GOOD,
    HostState.LOST: StatusColor.BAD,
    HostState.REFUSED: StatusColor.BAD,
    HostState.CLOSED: StatusColor.OFF,
}
_TASK = (Column(), Column(), Column(), Column(), Column(), Column(rank=1))
_INDENT = 2
_MOST_HOSTS = 64
"""Hosts that are shown; ten thousand rows once a second take a whole core."""


class HostsScreen(Screen[None]):
    """Shows the last reports of the hosts' agents, once a second; asks no host itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,H", "app.pop_screen", "Back to the logs", id="hosts.back"),
    ]

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self._control = control

    def compose(self) -> ComposeResult:
        yield RunHeader()
        with VerticalScroll(classes="body"):
            yield Static(markup=False)
        hints = [("kill_all", "kill all"), ("hosts.back", "back"), ("metrics", "metrics")]
        yield KeyFooter([*hints, ("help", "help")])

    def on_mount(self) -> None:
        self.set_interval(1.0, self._show)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)  # rows fit the width

    def _show(self) -> None:
        snapshot = self._control.snapshot()
        self.query_one(RunHeader).show(snapshot)
        text, colours = self.query_one(Static), status_colours(self.app)
        text.update(hosts_text(snapshot, time.time(), colours, text.container_size.width))


def hosts_text(snapshot: Snapshot, now: float, colours: dict[StatusColor, str], width: int) -> Text:
    """A block a host: its link, its load, and a row for each of its tasks; in `width` cells. Of
    many hosts, those in trouble come first, and the last ones are counted."""
    text = _allocation(snapshot, now, colours)
    tasks: dict[str, list[TaskView]] = {}
    for task in snapshot.tasks:
        tasks.setdefault(task.host, []).append(task)
    hosts = list(snapshot.hosts)
    if len(hosts) > _MOST_HOSTS:
        hosts.sort(key=lambda host: not _in_trouble(host, tasks.get(host.name, ())))
    shown, rest = hosts[:_MOST_HOSTS], hosts[_MOST_HOSTS:]
    lines = {
        task.id: _task(task, host.usage.get(task.id), colours)
        for host in shown
        for task in tasks.get(host.name, ())
    }
    table = Columns(_TASK, list(lines.values()), width - _INDENT)
    for host in shown:
        text.append_text(_link(host, snapshot.state, now, colours, width)).append("\n")
        text.append_text(_load(host))
        for task in tasks.get(host.name, ()):
            text.append_text(indented(table.row(lines[task.id]), _INDENT)).append("\n")
        text.append("\n")
    if rest:
        states = Counter(_state(host, snapshot.state)[0] for host in rest)
        counts = ", ".join(f"{thousands(count)} {state}" for state, count in states.items())
        text.append(f"{counted(len(rest), 'more host')}: {counts}\n", "dim")
    return text


def _in_trouble(host: HostView, tasks: Iterable[TaskView]) -> bool:
    bad = any(status_color(task) is StatusColor.BAD for task in tasks)
    return bad or _COLORS[host.state] is StatusColor.BAD


def _link(
    host: HostView, phase: RunPhase, now: float, colours: dict[StatusColor, str], width: int
) -> Text:
    """The host, its state, and below it why it is so."""
    state, color = _state(host, phase)
    parts = [Part(0, host.name, "bold"), Part(0, state, f"bold {colours[color]}")]
    if host.destination != host.name:
        parts.append(Part(3, host.destination, "dim"))
    if host.last_heard is not None:
        parts.append(Part(1, f"heard {age(now - host.last_heard)} ago", "dim"))
    if host.lease_until is not None:
        left = host.lease_until - now
        word = f"lease ends in {age(left)}" if left > 0 else "lease has ended"
        parts.append(Part(2, word, "dim"))
    text = fit(parts, width)
    more = [host.reason]
    if host.staged_total and host.staged_bytes < host.staged_total:
        staged = f"staged {size(host.staged_bytes)} of {size(host.staged_total)}"
        more.append(f"{staged}, {host.staged_files} of {host.staged_total_files} files")
    if host.collected_total:
        more.append(f"results {size(host.collected_bytes)} of {size(host.collected_total)}")
    for line in filter(None, more):
        lines = wrapped(Text(line), width - _INDENT)
        text.append("\n").append_text(indented(lines, _INDENT))
    return text


def _task(
    task: TaskView, usage: tuple[float, int] | None, colours: dict[StatusColor, str]
) -> TableLine:
    cpu, memory = ("", "") if usage is None else (f"{usage[0] * 100:.0f} %", size(usage[1]))
    fields = [
        CellText(STATE_MARKS[task.state].letter, f"bold {colours[status_color(task)]}"),
        CellText(str(task.id)),
        CellText(task.exit_text),
        CellText(f"cpu {cpu:>6}" if cpu else ""),
        CellText(f"memory {memory:>7}" if memory else ""),
        CellText("" if task.pid is None else f"pid {task.pid}", "dim"),
    ]
    return TableLine(fields, CellText(task.address, "dim"))


def _state(host: HostView, phase: RunPhase) -> tuple[str, StatusColor]:
    """The state of a host; it is connected to when it is there, and not after the end."""
    if host.state is HostState.CONNECTING and phase is RunPhase.QUEUED:
        return str(phase), StatusColor.WAITING
    if host.state is HostState.CONNECTING and phase is RunPhase.ENDED:
        return "never connected", StatusColor.OFF
    return str(host.state), _COLORS[host.state]


def _allocation(snapshot: Snapshot, now: float, colours: dict[StatusColor, str]) -> Text:
    """The engine's job, in the queue, at work or ended; empty where there is none."""
    text, allocation = Text(), snapshot.allocation
    if allocation is None:
        return text
    queue = queue_status(snapshot, now)
    text.append(queue or f"{allocation.title} {allocation.state}", "bold")
    for sentence in (allocation.advice if queue else "", allocation.ended):
        text.append(f"\n{printable(sentence)}" if sentence else "", colours[StatusColor.BAD])
    text.append(f"\n{printable(allocation.released)}" if allocation.released else "")
    return text.append("\n\n")


def _load(host: HostView) -> Text:
    text = Text()
    if host.cpu is not None:
        text.append(f"  cpu    {bar(host.cpu, 20)} {host.cpu * 100:>4.0f} %\n")
    if host.memory_used is not None and host.memory_total:
        share = host.memory_used / host.memory_total
        used, total = size(host.memory_used), size(host.memory_total)
        text.append(f"  memory {bar(share, 20)} {share * 100:>4.0f} %  {used} of {total}\n")
    for gpu in host.gpus:
        text.append(f"  gpu    {gpu}\n")
    return text
