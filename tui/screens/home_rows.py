"""Rows of Home's two tables, and the details of what is under the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from launcher.cluster.file_model import ClusterModel
from launcher.cluster.roles import plural
from launcher.history.run_list import ListedRun
from launcher.paths import tilde
from launcher.quantities import age, clock, counted, thousands
from launcher.run.states import RunPhase
from tui.catalog import ClusterEntry, DemoEntry, Entry
from tui.format import UNCONFIRMED, StatusColor, figure, outcome_mark
from tui.tables import TableRow, right

Colours = Mapping[StatusColor, str]
CLUSTER_TITLES: Sequence[str | Text] = ["cluster", "tasks and hosts", right("changed")]
RUN_ORDERS: Mapping[str, Callable[[ListedRun], Any]] = {
    "state": lambda entry: str(entry.summary.outcome or entry.summary.state),
    "run": lambda entry: entry.summary.run_id,
    "time": lambda entry: (entry.summary.ended or entry.summary.time) - entry.summary.started,
    "step": lambda entry: entry.summary.step,
    "loss": lambda entry: entry.summary.loss,
    "tasks": lambda entry: entry.summary.tasks,
    "started": lambda entry: entry.summary.started,
    "note": lambda entry: entry.summary.first_failure,
}
"""The columns of the runs, and what each orders by."""
_FIGURES = ("time", "step", "loss", "tasks", "started")
_NARROW = 100
"""Cells below which the number of tasks has no room beside a note."""
CLUSTER_ORDERS = (
    lambda entry: entry.path.stem,
    lambda entry: shape(entry.cluster) if entry.cluster else "",
    lambda entry: entry.stamp.mtime_ns if entry.stamp else 0,
)
DEMOS, NEW, NO_ROW = "demos", "new", "none"
"""Keys of the rows that are no entry: the group of the demos, a first cluster, and what is shown
where a filter leaves nothing."""
GROUP_DETAILS = {
    NEW: (
        "first cluster",
        "A cluster file names the hosts, the jobs with their tasks, and the command that each task "
        "runs. The templates are such files, to be changed in the editor; a file of your own opens "
        "with: tfmux FILE",
    ),
    DEMOS: (
        "demos",
        "Trainings and tours on this machine only. Each is a cluster file that you can view, copy "
        "under another name, and change.",
    ),
}
"""Title and details of these rows."""
_OTHERS = 66
"""Cells of a row of runs beside the run's id."""
_SHORTEST_ID, _TELLING = 20, 11
"""Cells of an id at least, and those of its end, which tell it from the others: `183002-7f3a`."""


def run_titles(width: int) -> dict[str, Text]:
    """The columns of the runs, and their titles, on a screen of so many cells."""
    names = (name for name in RUN_ORDERS if name != "tasks" or width >= _NARROW)
    return {name: right(name) if name in _FIGURES else Text(name) for name in names}


def run_row(entry: ListedRun, now: float, colours: Colours, width: int) -> TableRow:
    """A run, active or past; on a screen of so many cells."""
    run = entry.summary
    word, color = _state(entry)
    spent = (now if entry.active else run.ended or run.time) - run.started
    step = "" if run.step is None else thousands(run.step)
    cells = {
        "state": Text(word, f"bold {colours[color]}" if entry.active else colours[color]),
        "run": Text(short_id(run.run_id, width - _OTHERS)),
        "time": right(clock(spent) if run.started else ""),
        "step": right(step),
        "loss": right("" if run.loss is None else figure(run.loss)),
        "tasks": right(_alive(entry)),
        "started": right(f"{age(now - run.started)} ago" if run.started else "", "dim"),
        "note": note_text(entry, colours),
    }
    return TableRow(entry.key, [cells[name] for name in run_titles(width)])


def short_id(run_id: str, width: int) -> str:
    """A run's id; where it is too long its beginning, and the end that tells it from others."""
    width = max(_SHORTEST_ID, width)
    if len(run_id) <= width:
        return run_id
    return f"{run_id[: width - _TELLING - 1]}…{run_id[-_TELLING:]}"


def _state(entry: ListedRun) -> tuple[str, StatusColor]:
    run = entry.summary
    if not entry.active:
        mark, color = outcome_mark(run.outcome, clean=run.clean is not False)
        return f"{mark} {run.outcome or 'unknown'}", color
    if any(host.unreachable for host in entry.hosts):
        return "? unreachable", StatusColor.BAD
    if entry.launcher is None:
        return ("▸ unsupervised" if entry.asked else "? asking hosts"), StatusColor.BUSY
    color = StatusColor.GOOD if run.state is RunPhase.RUNNING else StatusColor.BUSY
    return f"▸ {run.state if run.name else 'active'}", color


def _alive(entry: ListedRun) -> str:
    """Tasks that have a process, of how many; of a past run, how many there were."""
    run = entry.summary
    if not run.tasks or not entry.active:
        return str(run.tasks or "")
    answered = entry.launcher is None and entry.asked
    return f"{entry.live_tasks if answered else run.live}/{run.tasks}"


def note_text(entry: Entry, colours: Colours) -> Text:
    """What is to be known first of an entry: what a run waits for or failed of, what is wrong with
    a cluster file; often nothing."""
    bad = colours[StatusColor.BAD]
    match entry:
        case ClusterEntry(problem=problem, problems=problems) if problem:
            more = f"  and {problems - 1} more" if problems > 1 else ""
            return Text(f"! {problem}{more}", bad)
        case ListedRun(active=True, summary=run):
            lost = [host for host in entry.hosts if host.unreachable]
            if lost:
                return Text("; ".join(f"{host.name}: {host.unreachable}" for host in lost), bad)
            if hangs := run.cause_text or run.stalled_text(time.time()):
                return Text(hangs, bad)
            waits = f"waits for {run.waiting}" if run.waiting else ""
            return Text("  ".join(filter(None, (waits, run.attempt_text))), "dim")
        case ListedRun(summary=run):
            told = [f"! {entry.problem}"] if entry.problem else []
            told += [UNCONFIRMED] if run.clean is False else []
            told += [text] if (text := run.cause_text or run.first_failure) else []
            return Text("  ".join(told), bad)
    return Text()


def cluster_row(entry: ClusterEntry, now: float, colours: Colours) -> TableRow:
    """A cluster file: its tasks, or what is wrong with it, and when it was changed."""
    about = note_text(entry, colours) or Text(shape(entry.cluster) if entry.cluster else "")
    if not entry.saved:
        about.append(f"  {tilde(entry.path)}", "dim")
    changed = ""
    if entry.stamp is not None:
        changed = f"{age(now - entry.stamp.mtime_ns / 1e9)} ago"
    return TableRow(entry.key, [Text(entry.path.stem), about, right(changed, "dim")])


def demo_rows(demos: Sequence[DemoEntry], *, shown: bool) -> Iterator[TableRow]:
    """The group of the demos, as a row, and below it the demos if they are shown."""
    count = counted(len(demos), "demo")
    about = "each trains on this machine at once, without configuration"
    yield TableRow(
        DEMOS, [Text(f"{'▾' if shown else '▸'} {count}", "bold"), Text(about, "dim"), Text()]
    )
    for entry in demos if shown else ():
        yield TableRow(entry.key, [Text(f"  {entry.name}"), Text(entry.about, "dim"), Text()])


def shape(cluster: ClusterModel) -> str:
    """`1 ps + 3 workers on 4 hosts`."""
    jobs = []
    for name, job in cluster.jobs.items():
        count = len(job.tasks)
        jobs.append(f"{count} {plural(name, count)}")
    hosts = {place.host for job in cluster.jobs.values() for place in job.tasks}
    where = counted(len(hosts), "host") if len(hosts) > 1 else next(iter(hosts), "")
    if all(cluster.is_local(host) for host in hosts):
        where = "this machine"
    if (engine := cluster.slurm) is not None:
        where = f"{counted(engine.nodes, 'node')} of {engine.label}"
    return f"{' + '.join(jobs)} on {where}"


def title(entry: Entry) -> str:
    """The name over an entry's details."""
    match entry:
        case ClusterEntry():
            return entry.path.stem
        case DemoEntry():
            return f"demo {entry.name}"
        case ListedRun():
            return entry.summary.run_id


def details_key(entry: Entry) -> object:
    """What is other when the record of an entry is to be read anew; None: there is none."""
    match entry:
        case ListedRun(summary=run):
            told = run.outcome, run.cause_text, run.first_failure, run.clean, run.stalled, run.live
            return entry.key, run.state, *told
        case ClusterEntry(cluster=ClusterModel()):
            return entry.key, entry.stamp
    return None


def detail(entry: Entry, colours: Colours, *, told: bool = False) -> Text:
    """Details of an entry, shown beside or below the tables. What a run has failed of may be `told`
    above."""
    text = Text()
    bad = colours[StatusColor.BAD]
    match entry:
        case ClusterEntry():
            append_pair(text, "file", tilde(entry.path))
            if entry.cluster is None:
                text.append(f"\n! {entry.problem}\n", bad)
                if entry.problems > 1:
                    text.append(f"and {entry.problems - 1} more: see the editor\n", "dim")
            else:
                for name, job in entry.cluster.jobs.items():
                    more = f"  and {len(job.tasks) - 12} more" if len(job.tasks) > 12 else ""
                    append_pair(text, name, "  ".join(map(str, job.tasks[:12])) + more)
        case DemoEntry():
            text.append(f"{entry.about}\n\n")
            text.append("Runs on this machine, without configuration.", "dim")
        case ListedRun():
            _append_run(text, entry, bad, told=told)
    return text


def append_pair(text: Text, key: str, value: str, style: str = "") -> None:
    """Adds a line of details: a word, and what it says."""
    text.append(f"{key:<9} ", "dim")
    text.append(f"{value}\n", style)


def _append_run(text: Text, entry: ListedRun, bad: str, *, told: bool) -> None:
    run = entry.summary
    started = time.localtime(run.started)
    append_pair(text, "started", time.strftime("%Y-%m-%d %H:%M:%S", started))
    if run.ended is not None:
        append_pair(text, "took", clock(run.ended - run.started))
    if run.outcome is not None:
        append_pair(text, "outcome", f"{run.outcome}, exit code {run.exit_code}")
    elif not entry.active:
        append_pair(text, "outcome", "no end was recorded: its launcher died", bad)
    if entry.problem:
        append_pair(text, "record", entry.problem, bad)
    if run.step is not None:
        append_pair(text, "step", thousands(run.step))
    if run.loss is not None:
        append_pair(text, "loss", figure(run.loss))
    if run.attempt_text:
        append_pair(text, "again", run.attempt_text)
    if run.cause_text and not told:
        append_pair(text, "cause", run.cause_text, bad)
    if run.first_failure and not told:
        append_pair(text, "first", run.first_failure, bad)
    if entry.active:
        append_pair(text, "launcher", f"pid {entry.launcher}" if entry.launcher else "none")
        append_pair(text, "tasks", f"{run.live} of {run.tasks} have a process")
        append_pair(text, "hosts", " ".join(run.hosts))
    append_pair(text, "folder", tilde(entry.folder.path))
    for host in entry.hosts:
        text.append(f"\n{host.name}  ", "bold")
        if host.unreachable:
            text.append(f"unreachable: {host.unreachable}", bad)
        else:
            text.append(" ".join(map(str, host.tasks)) or "no task")
    text.append("\n")
