"""Hosts screen: a row a host with its load and tasks, and the tasks of one of them in full."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import DataTable, Static

from launcher.printable import printable
from launcher.quantities import age, size
from launcher.run.snapshot import HostReceipt, HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase
from launcher.session.control import RunControl
from tui.format import STATE_MARKS, StatusColor, bar, state_mark, status_color
from tui.outcome import host_verdict, queue_status
from tui.screens.page import fit
from tui.screens.run_page import RunPage
from tui.tables import Cells, TableRow, right
from tui.widgets.colours import status_colours
from tui.widgets.footer import KeyFooter, stacks_hint
from tui.widgets.header import RunHeader
from tui.widgets.table import Table

_COLORS = {
    HostState.CONNECTING: StatusColor.BUSY,
    HostState.UP: StatusColor.GOOD,
    HostState.LOST: StatusColor.BAD,
    HostState.REFUSED: StatusColor.BAD,
    HostState.CLOSED: StatusColor.OFF,
}
_MANY = 64
"""Hosts from which on those in trouble are listed first."""
_NAMED_TASKS = ((100, 4), (0, 2))
"""Least width of the screen, and the most tasks of a host that are named in its row there; of more,
those in trouble are named and the others counted."""
_WIDE = 160
"""Cells of width from which on every host has its address in its row; on a narrower screen that
of the host under the cursor stands over its tasks."""
_BAR_CELLS = ((_WIDE, 16), (100, 10), (0, 5))
"""Least width of the screen, and how long bars are there."""
_MEMORY_LEVELS = ((0.95, StatusColor.BAD), (0.8, StatusColor.BUSY), (0.0, StatusColor.GOOD))
"""Shares of memory from which on its bar has a colour."""

Colours = dict[StatusColor, str]


class HostsScreen(RunPage):
    """Shows the last reports of the hosts' agents, once a second; asks no host itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,H", "app.pop_screen", "Back to the logs", id="hosts.back"),
    ]

    def __init__(self, control: RunControl, alert: Callable[[], str] = str) -> None:
        super().__init__(control, alert)
        # Kept, not looked up: the screen may be left before all of its parts are there.
        self._hosts = Table("hosts", "Hosts", fits=True)
        self._allocation = Static(id="allocation", markup=False)
        self._about = Static(id="about", markup=False)
        self._tasks = Table("tasks", fits=True)
        self._tasks.can_focus = False
        self._box = Vertical(self._about, self._tasks, id="host", classes="framed")

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield self._allocation
        yield self._hosts
        yield self._box
        yield KeyFooter()

    def on_mount(self) -> None:
        fit(self)
        self.set_focus(self._hosts)
        self._show()
        self.set_interval(1.0, self._show)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)  # bars are longer where there is room

    @on(Table.Ordered)
    def _show(self) -> None:
        if self.app.screen is not self or not self._tasks.is_mounted:
            return
        snapshot, now = self._control.snapshot(), time.time()
        colours = status_colours(self.app)
        hints = [("hosts.back", "back"), ("metrics", "metrics"), ("help", "help")]
        self.show_run([*hints, *stacks_hint(snapshot.state)])
        allocation = allocation_text(snapshot, now, colours)
        self._allocation.update(allocation)
        self._allocation.display = bool(allocation)
        columns = [
            name
            for name in _ORDERS
            if (name != "address" or self._wide)
            and (name not in _MEASURED or snapshot.state is not RunPhase.ENDED)
        ]
        orders = [_ORDERS[name] for name in columns]
        rows = [
            TableRow(load.host.name, partial(self._cells, load, snapshot.state, now, columns))
            for load in self._hosts.ordered(host_loads(snapshot), orders)
        ]
        self._hosts.show([_TITLES.get(name, name) for name in columns], rows)
        self._show_host()

    @property
    def _wide(self) -> bool:
        return self.app.size.width >= _WIDE

    def _cells(self, load: HostLoad, phase: RunPhase, now: float, columns: Sequence[str]) -> Cells:
        made = host_cells(load, phase, now, status_colours(self.app), self.app.size.width)
        return [made[name] for name in columns]

    @on(DataTable.RowHighlighted, "#hosts")
    def _show_host(self) -> None:
        """Shows the tasks of the host under the cursor."""
        if self.app.screen is not self or not self._tasks.is_mounted:
            return
        key = self._hosts.key
        load = next(
            (one for one in host_loads(self._control.snapshot()) if one.host.name == key), None
        )
        if load is None:
            return
        colours = status_colours(self.app)
        about = about_text(load, colours)
        self._about.update(about)
        self._about.display = bool(about)
        host = load.host
        at = f" at {host.destination}" if not self._wide and host.destination != host.name else ""
        self._box.border_title = Content(f"Tasks on {printable(host.name + at)}")
        ended = self._control.snapshot().state is RunPhase.ENDED
        rows = [
            TableRow(str(task.id), partial(task_cells, task, load.host, colours))
            for task in load.tasks
        ]
        self._tasks.show(_LAST_TITLES if ended else _TASK_TITLES, rows)


class HostLoad(NamedTuple):
    """A host, its tasks, and after the end what the receipt says of it."""

    host: HostView
    tasks: list[TaskView]
    receipt: HostReceipt | None = None

    @property
    def in_trouble(self) -> bool:
        """The host, or one of its tasks, is in a bad state."""
        bad = any(status_color(task) is StatusColor.BAD for task in self.tasks)
        return bad or _COLORS[self.host.state] is StatusColor.BAD

    @property
    def memory(self) -> float | None:
        """Share of the host's memory that is used."""
        used, total = self.host.memory_used, self.host.memory_total
        return used / total if used is not None and total else None

    @property
    def gpu(self) -> float | None:
        """Mean load of the GPUs."""
        loads = [gpu.utilisation for gpu in self.host.gpus if gpu.utilisation is not None]
        return sum(loads) / len(loads) if loads else None


def host_loads(snapshot: Snapshot) -> list[HostLoad]:
    """The hosts with their tasks; of many, those in trouble first."""
    tasks: dict[str, list[TaskView]] = {}
    for task in snapshot.tasks:
        tasks.setdefault(task.host, []).append(task)
    receipts = {one.host: one for one in snapshot.receipt.hosts} if snapshot.receipt else {}
    loads = [
        HostLoad(host, tasks.get(host.name, []), receipts.get(host.name)) for host in snapshot.hosts
    ]
    if len(loads) > _MANY:
        loads.sort(key=lambda load: not load.in_trouble)
    return loads


_ORDERS: Mapping[str, Callable[[HostLoad], Any]] = {
    "host": lambda load: load.host.name,
    "state": lambda load: load.host.state,
    "cpu": lambda load: load.host.cpu or 0.0,
    "memory": lambda load: load.memory or 0.0,
    "gpu": lambda load: load.gpu or 0.0,
    "tasks": lambda load: len(load.tasks),
    "note": lambda load: load.host.reason,
    "heard": lambda load: load.host.last_heard or 0.0,
    "lease": lambda load: load.host.lease_until or 0.0,
    "address": lambda load: load.host.destination,
}
"""The columns, and what each orders by."""
_TITLES = {name: right(name) for name in ("heard", "lease")}
_MEASURED = ("cpu", "memory", "gpu", "heard", "lease")
"""Columns of a host that is connected: after the end of the run nobody measures it."""
_TASK_TITLES: list[str | Text] = [
    "task",
    "state",
    right("cpu"),
    right("memory"),
    right("pid"),
    "address",
]
_LAST_TITLES = [*_TASK_TITLES[:2], right("last cpu"), right("last memory"), *_TASK_TITLES[4:]]


def host_cells(
    load: HostLoad, phase: RunPhase, now: float, colours: Colours, width: int
) -> Mapping[str, Text]:
    """The cells of a host by their columns, on a screen of so many cells."""
    host = load.host
    cells = next(cells for least, cells in _BAR_CELLS if width >= least)
    state, color = _state(load, phase)
    memory = Text()
    if load.memory is not None:
        level = next(color for least, color in _MEMORY_LEVELS if load.memory >= least)
        memory = _bar(load.memory, cells, colours[level])
        if cells > _BAR_CELLS[-1][1]:
            memory.append(f" of {size(host.memory_total or 0)}", "dim")
    gpu = Text()
    if load.gpu is not None:
        gpu = _bar(load.gpu, cells, colours[StatusColor.GOOD])
        gpu.append(f" ×{len(host.gpus)}" if len(host.gpus) > 1 else "", "dim")
    cpu = Text() if host.cpu is None else _bar(host.cpu, cells, colours[StatusColor.GOOD])
    heard, lease = host.last_heard, host.lease_until
    left = "" if lease is None else age(lease - now) if lease > now else "ended"
    note = Text(" ".join(_notes(host)), colours[color] if color is StatusColor.BAD else "")
    named = next(named for least, named in _NAMED_TASKS if width >= least)
    return {
        "host": Text(printable(host.name), "bold"),
        "state": Text(state, f"bold {colours[color]}"),
        "cpu": cpu,
        "memory": memory,
        "gpu": gpu,
        "tasks": _tasks(load.tasks, named, colours),
        "note": note,
        "heard": right("" if heard is None else f"{age(now - heard)} ago", "dim"),
        "lease": right(left, "dim" if left != "ended" else colours[StatusColor.BAD]),
        "address": Text(
            printable(host.destination) if host.destination != host.name else "", "dim"
        ),
    }


def task_cells(task: TaskView, host: HostView, colours: Colours) -> Cells:
    """Row of a task: its share of the host's load, its process and its address."""
    usage = host.usage.get(task.id)
    cpu, memory = ("", "") if usage is None else (f"{usage[0] * 100:.0f} %", size(usage[1]))
    return [
        Text(str(task.id), "bold"),
        Text(task.exit_text, colours[status_color(task)]),
        right(cpu),
        right(memory),
        right("" if task.pid is None else str(task.pid), "dim"),
        Text(task.url or task.address, "dim"),
    ]


def about_text(load: HostLoad, colours: Colours) -> Text:
    """Why the host is in its state, what is brought there or back, its GPUs, and the word of its
    receipt, a line each."""
    host = load.host
    lines = [Text(line) for line in _notes(host)]
    lines += [Text(f"gpu {gpu.index}: {printable(gpu.name)}") for gpu in host.gpus]
    if load.receipt is not None:
        lines.append(Text(*host_verdict(load.receipt, colours)))
    return Text("\n").join(lines)


def allocation_text(snapshot: Snapshot, now: float, colours: Colours) -> Text:
    """The engine's job, in the queue, at work or ended; empty where there is none."""
    text, allocation = Text(), snapshot.allocation
    if allocation is None:
        return text
    queue = queue_status(snapshot, now)
    text.append(queue or f"{allocation.title} {allocation.state}", "bold")
    for sentence in (allocation.advice if queue else "", allocation.ended):
        text.append(f"\n{printable(sentence)}" if sentence else "", colours[StatusColor.BAD])
    return text.append(f"\n{printable(allocation.released)}" if allocation.released else "")


def _bar(share: float, cells: int, style: str) -> Text:
    text = Text(no_wrap=True).append(bar(share, cells), style)
    return text.append(f"{share * 100:>4.0f} %")


def _tasks(tasks: Sequence[TaskView], most: int, colours: Colours) -> Text:
    """Letters and names of at most so many tasks; of more, those in trouble, and the number of the
    others."""
    named = list(tasks)
    if len(tasks) > most:
        named = [task for task in tasks if status_color(task) is StatusColor.BAD][:most]
    others = Counter(task.state for task in tasks if task not in named)
    parts = [(*state_mark(task), str(task.id)) for task in named]
    parts += [(*STATE_MARKS[state], str(count)) for state, count in others.items()]
    text = Text(no_wrap=True)
    for letter, color, word in parts:
        text.append("  " if text else "").append(letter, f"bold {colours[color]}")
        text.append(f" {word}")
    return text


def _state(load: HostLoad, phase: RunPhase) -> tuple[str, StatusColor]:
    """The state of a host; it is connected to when it is there, and not after the end: then the
    receipt counts."""
    host, receipt = load.host, load.receipt
    if phase is RunPhase.ENDED and receipt is not None:
        if receipt.left:
            return f"{receipt.left} left", StatusColor.BAD
        if receipt.confirmed or receipt.by_engine:
            return "none left", StatusColor.GOOD
        return "not confirmed" if receipt.doubt else "unreachable", StatusColor.BAD
    if phase is RunPhase.ENDED and host.state is HostState.UP:
        return str(HostState.CLOSED), StatusColor.OFF
    if host.state is HostState.CONNECTING and phase is RunPhase.QUEUED:
        return str(phase), StatusColor.WAITING
    if host.state is HostState.CONNECTING and phase is RunPhase.ENDED:
        return "never connected", StatusColor.OFF
    return str(host.state), _COLORS[host.state]


def _notes(host: HostView) -> list[str]:
    """Why the host is in its state, and what is being brought there or back."""
    notes = [printable(host.reason)] if host.reason else []
    if host.staged_total and host.staged_bytes < host.staged_total:
        staged = f"staged {size(host.staged_bytes)} of {size(host.staged_total)}"
        notes.append(f"{staged}, {host.staged_files} of {host.staged_total_files} files")
    if host.collected_total:
        notes.append(f"results {size(host.collected_bytes)} of {size(host.collected_total)}")
    return notes
