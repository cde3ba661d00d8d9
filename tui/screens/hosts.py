"""Hosts screen: link, lease and load of each host, and its tasks' share of the load."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from launcher.printable import printable
from launcher.quantities import age, size
from launcher.run.snapshot import HostView, Snapshot
from launcher.run.states import HostState, RunPhase
from launcher.session.control import RunControl
from tui.format import LETTERS, StatusColor, bar, status_color
from tui.outcome import queue_status
from tui.widgets.colours import status_colours
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader

_COLORS = {
    HostState.CONNECTING: StatusColor.BUSY,
    HostState.UP: StatusColor.GOOD,
    HostState.LOST: StatusColor.BAD,
    HostState.REFUSED: StatusColor.BAD,
    HostState.CLOSED: StatusColor.OFF,
}
_LOAD_WIDE = len("cpu  100 %  memory  512 MB")
_PID_WIDE = len("pid 4194304")


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
        self._show()
        self.set_interval(1.0, self._show)

    def _show(self) -> None:
        snapshot = self._control.snapshot()
        self.query_one(RunHeader).show(snapshot)
        colours = status_colours(self.app)
        self.query_one(Static).update(hosts_text(snapshot, time.time(), colours))


def hosts_text(snapshot: Snapshot, now: float, colours: dict[StatusColor, str]) -> Text:
    """A block a host: its link, its load, and a row for each of its tasks."""
    text = Text(no_wrap=True)
    name_wide = max((len(str(task.id)) for task in snapshot.tasks), default=0)
    exit_wide = max((len(task.exit_text) for task in snapshot.tasks), default=0)
    text.append_text(_allocation(snapshot, now, colours))
    for host in snapshot.hosts:
        state, color = _state(host, snapshot.state)
        text.append(f"{host.name}", "bold")
        text.append(f"  {host.destination}" if host.destination != host.name else "", "dim")
        text.append(f"  {state}", f"bold {colours[color]}")
        if host.reason:
            text.append(f"  {host.reason}")
        if host.last_heard is not None:
            text.append(f"  heard {age(now - host.last_heard)} ago", "dim")
        if host.lease_until is not None:
            left = host.lease_until - now
            word = f"lease ends in {age(left)}" if left > 0 else "lease has ended"
            text.append(f"  {word}", "dim")
        if host.staged_total and host.staged_bytes < host.staged_total:
            text.append(f"  staged {size(host.staged_bytes)} of {size(host.staged_total)}")
            text.append(f", {host.staged_files} of {host.staged_total_files} files")
        if host.collected_total:
            done, total = size(host.collected_bytes), size(host.collected_total)
            text.append(f"  results {done} of {total}")
        text.append("\n")
        text.append_text(_load(host))
        for task in snapshot.tasks:
            if task.host != host.name:
                continue
            text.append(f"  {LETTERS[task.state]} ", f"bold {colours[status_color(task)]}")
            text.append(f"{task.id!s:<{name_wide}}  {task.exit_text:<{exit_wide}}")
            cpu, memory = host.usage.get(task.id, (None, None))
            load = "" if cpu is None else f"cpu {cpu * 100:>4.0f} %  memory {size(memory or 0):>7}"
            text.append(f"  {load:<{_LOAD_WIDE}}")
            pid = "" if task.pid is None else f"pid {task.pid}"
            text.append(f"  {pid:<{_PID_WIDE}}  {task.address}\n", "dim")
        text.append("\n")
    return text


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
