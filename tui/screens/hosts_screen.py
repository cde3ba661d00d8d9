"""Hosts screen: a row a host with its load and tasks, a row a GPU, and the tasks of one host in
full."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import DataTable, Static

from launcher.history.control import RunControl
from launcher.printable import printable
from launcher.quantities import age, counted, size
from launcher.run.gpus import GpuView, gpu_memory
from launcher.run.snapshot import HostReceipt, HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase
from tui.format import STATE_MARKS, StatusColor, bar, state_mark, status_color
from tui.gpu_load import GpuHistory, Ill, LoadHistory, ills, is_bad, mean, memory_share, users
from tui.outcome import host_verdict, queue_status
from tui.screens.page import entitle, fit
from tui.screens.run_page import RunPage
from tui.tables import NOTHING, Cells, TableRow, right
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
_BAR_CELLS = ((100, 10), (0, 5))
"""Least width of the screen, and how long bars are there."""
_SPARK_CELLS = ((_WIDE, 12), (0, 0))
"""Least width of the screen, and how long sparklines are there; those of GPUs need less room."""
_GPU_SPARK_FROM = 100
_MOST_FAULTS = 2
_MOST_FOREIGN = 3
"""Lines about processes on a host's GPUs that are no task's."""
_LEAST_TASK_ROWS = 6
"""Rows for the tasks of a host, with those of their frame, below the GPUs of all hosts."""
_MEMORY_LEVELS = ((0.95, StatusColor.BAD), (0.8, StatusColor.BUSY), (0.0, StatusColor.GOOD))
_CPU_LEVELS = ((0.98, StatusColor.BUSY), (0.0, StatusColor.GOOD))
_GPU_MEMORY_LEVELS = ((0.98, StatusColor.BUSY), (0.0, StatusColor.GOOD))
"""Shares from which on a bar has a colour; frameworks take the memory of a GPU as a whole."""
_GPU_SPARK_CELLS = 10
_LONGEST_ILL = 30
"""Characters about what is wrong with a GPU in its row; the whole stands over the host's tasks."""
_ADDRESS_CELLS = 32
"""Cells of a host's address, which may be a whole command (`via`)."""

Colours = dict[StatusColor, str]


class HostsScreen(RunPage):
    """Shows the last reports of the hosts' agents, once a second; asks no host itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,H", "app.pop_screen", "Back to the logs", id="hosts.back"),
    ]

    def __init__(self, control: RunControl, alert: Callable[[], str] = str) -> None:
        super().__init__(control, alert)
        self._gpu_histories: dict[str, GpuHistory] = {}
        # Kept, not looked up: the screen may be left before all of its parts are there.
        self._hosts = Table("hosts", "Hosts", fills=-1, fits=True)
        self._allocation = Static(id="allocation", markup=False)
        self._gpus = Table("gpus", "GPUs", fills=-1, fits=True)
        self._about = Static(id="about", markup=False)
        self._tasks = Table("tasks", fits=True)
        self._tasks.can_focus = False
        self._box = Vertical(self._about, self._tasks, id="host", classes="framed")

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield self._allocation
        yield self._hosts
        with Container(id="below"):
            yield self._gpus
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
        _say(self._allocation, allocation_text(snapshot, now, colours))
        hosts = snapshot.hosts
        told = {
            "gpu": any(host.gpus for host in hosts),
            "lease": any(host.lease_until is not None for host in hosts),
            "note": any(_notes(host) for host in hosts),
            "address": self._wide and any(host.destination != host.name for host in hosts),
        }
        columns = [
            name
            for name in _ORDERS
            if told.get(name, True)
            and (name not in _MEASURED or snapshot.state is not RunPhase.ENDED)
            and (name not in _LEASES or not told["gpu"] or self.app.size.width >= _LEASES_FROM)
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

    @property
    def _history(self) -> LoadHistory:
        return self.logs.monitor.history

    def _gpu_history(self, host: str) -> GpuHistory:
        """The load of a host's GPUs; made anew when there are other samples."""
        samples, known = self._control.gpu_samples(host), self._gpu_histories.get(host)
        if known is None or [*known.samples][-1:] != [*samples][-1:]:
            known = self._gpu_histories[host] = GpuHistory(samples)
        return known

    def _cells(self, load: HostLoad, phase: RunPhase, now: float, columns: Sequence[str]) -> Cells:
        width, colours = self.app.size.width, status_colours(self.app)
        past = self._history, self._gpu_history(load.host.name)
        made = host_cells(load, phase, now, colours, width, past)
        return [made[name] for name in columns]

    @on(DataTable.RowHighlighted, "#hosts")
    def _show_host(self) -> None:
        """Shows the GPUs and the tasks of the host under the cursor."""
        if self.app.screen is not self or not self._tasks.is_mounted:
            return
        key, snapshot = self._hosts.key, self._control.snapshot()
        loads = host_loads(snapshot)
        load = next((one for one in loads if one.host.name == key), None)
        if load is None:
            return
        ended = snapshot.state is RunPhase.ENDED
        self._show_gpus(load, [] if ended else loads)
        colours = status_colours(self.app)
        _say(self._about, about_text(load, colours))
        host = load.host
        at = f" ({host.destination})" if not self._wide and host.destination != host.name else ""
        entitle(self._box, f"Tasks on {printable(host.name + at)}")
        titles = _LAST_TITLES if ended else _TASK_TITLES
        columns = [name for name in titles if name != "gpu" or (host.gpus and not ended)]
        memory = gpu_memory(host.gpus)

        def cells(task: TaskView) -> Cells:
            made = task_cells(task, host, memory.get(task.id), colours)
            return [made[name] for name in columns]

        rows = [TableRow(str(task.id), partial(cells, task)) for task in load.tasks]
        self._tasks.show([titles[name] for name in columns], rows)

    def _show_gpus(self, load: HostLoad, loads: Sequence[HostLoad]) -> None:
        """Shows the GPUs of all hosts, where there is room, else those of one."""
        width, height = self.app.size
        beside = width >= _WIDE
        every = [(one, part) for one in loads for gpu in one.host.gpus for part in gpu.parts]
        room = height - len(loads) - (10 if beside else 10 + _LEAST_TASK_ROWS)
        whole = len(every) <= room
        shown = every if whole else [(one, gpu) for one, gpu in every if one.host is load.host]
        hosts = list({one.host.name: one.host for one, _ in shown}.values())
        several = whole and len(hosts) > 1
        self.set_class(bool(every), "-gpus")
        self.set_class(bool(every) and beside, "-beside")
        self._gpus.display = bool(every)
        models = [printable(gpu.name) for host in hosts for gpu in host.gpus]
        whose = f"{len(models)} GPUs of {counted(len(hosts), 'host')}"
        whose = whose if several else f"GPUs of {printable(load.host.name)}"
        entitle(self._gpus, f"{whose}: {', '.join(dict.fromkeys(models))}")
        columns = [
            name
            for name in _GPU_ORDERS
            if (name != "host" or several)
            and (name != "lately" or width >= _GPU_SPARK_FROM)
            and (name != "power" or width >= _GPU_SPARK_FROM)
        ]
        orders = [_GPU_ORDERS[name] for name in columns]
        now, colours = time.time(), status_colours(self.app)

        def cells(one: HostLoad, gpu: GpuView) -> Cells:
            past = self._gpu_history(one.host.name)
            made = gpu_cells(one, gpu, now, colours, width, past)
            return [made[name] for name in columns]

        rows = [
            TableRow(f"{one.host.name} {gpu.index} {gpu.uuid}", partial(cells, one, gpu))
            for one, gpu in self._gpus.ordered(shown, orders)
        ]
        self._gpus.show([_GPU_TITLES.get(name, name) for name in columns], rows)


class HostLoad(NamedTuple):
    """A host, its tasks, and after the end what the receipt says of it."""

    host: HostView
    tasks: list[TaskView]
    receipt: HostReceipt | None = None

    @property
    def in_trouble(self) -> bool:
        """The host, one of its tasks or one of its GPUs, is in a bad state."""
        if _COLORS[self.host.state] is StatusColor.BAD or any(map(is_bad, self.host.gpus)):
            return True
        return any(status_color(task) is StatusColor.BAD for task in self.tasks)

    @property
    def memory(self) -> float | None:
        """Share of the host's memory that is used."""
        return memory_share(self.host)

    @property
    def gpu(self) -> float | None:
        """Mean load of the GPUs."""
        return mean(gpu.utilisation for gpu in self.host.gpus)


def host_loads(snapshot: Snapshot) -> list[HostLoad]:
    """The hosts with their tasks; of many, those in trouble first."""
    tasks: dict[str, list[TaskView]] = {}
    for task in snapshot.tasks:
        tasks.setdefault(task.host, []).append(task)
    receipts = {one.host: one for one in snapshot.receipt.hosts} if snapshot.receipt else {}
    loads = [
        HostLoad(_known(host, snapshot.state), tasks.get(host.name, []), receipts.get(host.name))
        for host in snapshot.hosts
    ]
    if len(loads) > _MANY:
        loads.sort(key=lambda load: not load.in_trouble)
    return loads


def _known(host: HostView, phase: RunPhase) -> HostView:
    """The host without the load that it had before it was lost, which is no longer known."""
    if host.state is not HostState.LOST or phase is RunPhase.ENDED:
        return host
    gpus = (
        replace(
            gpu,
            utilisation=None,
            memory_used=None,
            temperature=None,
            power=None,
            throttled=(),
            idle_since=None,
        )
        for gpu in host.gpus
    )
    return replace(host, cpu=None, memory_used=None, usage={}, gpus=tuple(gpus))


_ORDERS: Mapping[str, Callable[[HostLoad], Any]] = {
    "host": lambda load: load.host.name,
    "state": lambda load: load.host.state,
    "cpu": lambda load: load.host.cpu,
    "memory": lambda load: load.memory,
    "gpu": lambda load: load.gpu,
    "seen": lambda load: load.host.last_heard,
    "lease": lambda load: load.host.lease_until,
    "address": lambda load: load.host.destination,
    "note": lambda load: load.host.reason,
    "tasks": lambda load: len(load.tasks),
}
"""The columns, and what each orders by."""
_TITLES = {name: right(name) for name in ("seen", "lease")}
_MEASURED = ("cpu", "memory", "gpu", "seen", "lease")
"""Columns of a host that is connected: after the end of the run nobody measures it."""
_LEASES, _LEASES_FROM = ("seen", "lease"), 100
"""Columns that leave their room to the tasks beside GPUs, and the width from which on both have
some."""
_TASK_TITLES: Mapping[str, str | Text] = {
    "task": "task",
    "state": "state",
    "cpu": right("cpu"),
    "memory": right("memory"),
    "gpu": right("gpu memory"),
    "pid": right("pid"),
    "address": "address",
}
_LAST_TITLES: Mapping[str, str | Text] = {
    **_TASK_TITLES,
    "cpu": right("last cpu"),
    "memory": right("last memory"),
}
_GPU_ORDERS: Mapping[str, Callable[[tuple[HostLoad, GpuView]], Any]] = {
    "host": lambda one: (one[0].host.name, one[1].index),
    "gpu": lambda one: one[1].index,
    "load": lambda one: one[1].utilisation,
    "lately": lambda one: one[1].utilisation,
    "memory": lambda one: one[1].memory,
    "temperature": lambda one: one[1].temperature,
    "power": lambda one: one[1].power,
    "whose": lambda one: [str(process.task) for process in one[1].processes],
}
"""The columns of GPUs, and what each orders by."""
_GPU_TITLES: Mapping[str, str | Text] = {
    "gpu": right("gpu"),
    "lately": "",
    "temperature": right("temp"),
    "power": right("W"),
}


def host_cells(
    load: HostLoad,
    phase: RunPhase,
    now: float,
    colours: Colours,
    width: int,
    past: tuple[LoadHistory, GpuHistory],
) -> Mapping[str, Text]:
    """The cells of a host by their columns, on a screen of so many cells."""
    host = load.host
    cells, sparks = _fitting(_BAR_CELLS, width), _fitting(_SPARK_CELLS, width)
    state, color = _state(load, phase)
    good = colours[StatusColor.GOOD]
    memory, gpu, cpu = Text(), Text(), Text()
    if load.memory is not None:
        memory = _bar(load.memory, cells, colours[_level(load.memory, _MEMORY_LEVELS)])
        if cells > _BAR_CELLS[-1][1]:
            memory.append(f" of {size(host.memory_total or 0)}", "dim")
    if load.gpu is not None:
        gpu = _bar(load.gpu, cells, good)
        gpu.append(f" ×{len(host.gpus)}" if len(host.gpus) > 1 else "", "dim")
    if host.cpu is not None:
        cpu = _bar(host.cpu, cells, colours[_level(host.cpu, _CPU_LEVELS)])
    history, gpu_history = past
    lines = (
        (cpu, history.cpu(host.name, sparks)),
        (memory, history.memory(host.name, sparks)),
        (gpu, gpu_history.all(sparks)),
    )
    for text, line in lines if sparks else ():
        if text:
            text.append(f" {line:>{sparks}}", good)
    if wrong := [(each[0], one.index) for one in host.gpus if (each := ills(one, now))]:
        worst, index = min(wrong)
        which = f"GPU {index}" if len(wrong) == 1 else f"{len(wrong)} GPUs"
        gpu.append("  " if gpu else "").append(f"! {which}", f"bold {colours[worst.color]}")
    heard, lease = host.last_heard, host.lease_until
    left = "" if lease is None else age(lease - now) if lease > now else "ended"
    note = Text(" ".join(_notes(host)), colours[color] if color is StatusColor.BAD else "")
    named = Text(printable(host.destination) if host.destination != host.name else "", "dim")
    named.truncate(_ADDRESS_CELLS, overflow="ellipsis")
    return {
        "host": Text(printable(host.name), "bold"),
        "state": Text(state, f"bold {colours[color]}"),
        "cpu": cpu,
        "memory": memory,
        "gpu": gpu,
        "tasks": _tasks(load.tasks, _fitting(_NAMED_TASKS, width), colours),
        "note": note,
        "seen": right("" if heard is None else f"{age(now - heard)} ago", "dim"),
        "lease": right(left, "dim" if left != "ended" else colours[StatusColor.BAD]),
        "address": named,
    }


def gpu_cells(
    load: HostLoad, gpu: GpuView, now: float, colours: Colours, width: int, past: GpuHistory
) -> Mapping[str, Text]:
    """The cells of a GPU by their columns, on a screen of so many cells: what is wrong with it
    stands before whose it is."""
    cells = _fitting(_BAR_CELLS, width)
    wrong = ills(gpu, now)
    idle = any(one.kind is Ill.IDLE for one in wrong)
    good, bad = colours[StatusColor.GOOD], f"bold {colours[StatusColor.BAD]}"
    memory = Text()
    if gpu.memory is not None:
        memory = _bar(gpu.memory, cells, colours[_level(gpu.memory, _GPU_MEMORY_LEVELS)])
        if width >= _GPU_SPARK_FROM:
            memory.append(f" of {size(gpu.memory_total or 0)}", "dim")
    whose = Text(no_wrap=True)
    for one in wrong:
        whose.append(f"{printable(one.text, _LONGEST_ILL)}  ", f"bold {colours[one.color]}")
    whose.append_text(users(gpu, load.tasks, colours[StatusColor.BUSY]))
    return {
        "host": Text(printable(load.host.name), "bold"),
        "gpu": right(str(gpu.index), "bold"),
        "load": Text(NOTHING)
        if gpu.utilisation is None
        else _bar(gpu.utilisation, cells, colours[StatusColor.BUSY] if idle else good),
        "lately": Text(past.one(gpu.index, _GPU_SPARK_CELLS), good),
        "memory": memory,
        "temperature": right(_whole(gpu.temperature, " C"), bad if gpu.hot else ""),
        "power": right(_whole(gpu.power), "dim"),
        "whose": whose,
    }


def task_cells(
    task: TaskView, host: HostView, gpu: int | None, colours: Colours
) -> Mapping[str, Text]:
    """The cells of a task by their columns: its share of the host's load, its GPUs and their memory
    that it holds, its process and its address."""
    usage = host.usage.get(task.id)
    cpu, memory = ("", "") if usage is None else (f"{usage[0] * 100:.0f} %", size(usage[1]))
    return {
        "task": Text(str(task.id), "bold"),
        "state": Text(task.exit_text, colours[status_color(task)]),
        "cpu": right(cpu),
        "memory": right(memory),
        "gpu": right("" if gpu is None else size(gpu)),
        "pid": right("" if task.pid is None else str(task.pid), "dim"),
        "address": Text(task.url or task.address, "dim"),
    }


def about_text(load: HostLoad, colours: Colours) -> Text:
    """Why the host is in its state, what is brought there or back, which of its GPUs have failed,
    whose other processes are on them, and what its receipt says, a line each."""
    host = load.host
    lines = [Text(line) for line in _notes(host)]
    faults = [printable(gpu.fault) for gpu in host.gpus if gpu.fault]
    lines += [Text(line, colours[StatusColor.BAD]) for line in faults[:_MOST_FAULTS]]
    foreign = [f"GPU {gpu.index}: {one.text}" for gpu in host.gpus for one in gpu.foreign]
    if len(foreign) > _MOST_FOREIGN:
        others = len(foreign) - _MOST_FOREIGN + 1
        foreign[_MOST_FOREIGN - 1 :] = [f"and {counted(others, 'more process', 'more processes')}"]
    lines += [Text(line, colours[StatusColor.BUSY]) for line in foreign]
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


def _say(widget: Static, text: Text) -> None:
    """Shows a text, or nothing; the same one again would lay out the whole screen."""
    if widget.content != text:
        widget.update(text)
    widget.display = bool(text)


def _fitting(steps: Sequence[tuple[int, int]], width: int) -> int:
    """The number of the first step that a screen is wide enough for."""
    return next(number for least, number in steps if width >= least)


def _whole(number: float | None, unit: str = "") -> str:
    return NOTHING if number is None else f"{number:.0f}{unit}"


def _level(share: float, levels: Sequence[tuple[float, StatusColor]]) -> StatusColor:
    return next(color for least, color in levels if share >= least)


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
    known = any(gpu.problem == host.gpu_problem for gpu in host.gpus)
    problem = "" if known else host.gpu_problem
    notes = [printable(text) for text in (host.reason, problem) if text]
    if host.staged_total and host.staged_bytes < host.staged_total:
        staged = f"staged {size(host.staged_bytes)} of {size(host.staged_total)}"
        notes.append(f"{staged}, {host.staged_files} of {host.staged_total_files} files")
    if host.collected_total:
        notes.append(f"results {size(host.collected_bytes)} of {size(host.collected_total)}")
    return notes
