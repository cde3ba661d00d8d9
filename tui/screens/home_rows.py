"""Rows of the home screen, and the details of one of them, as text of a given width."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.widgets.option_list import Option

from launcher.cluster import ClusterModel
from launcher.quantities import age, counted, thousands
from launcher.run.states import RunPhase
from launcher.session.history import RunSummary
from tui.catalog import ClusterEntry, DemoEntry, Entries, Entry, RunEntry
from tui.format import UNCONFIRMED, StatusColor, clock, figure, outcome_mark
from tui.widgets.columns import CellText, Column, Columns, TableLine, indented

Colours = dict[StatusColor, str]
NARROW = 90
"""Cells of width below which step and loss matter more than the whole of a run's id."""
_INDENT = 2
_NAME = 40
"""Cells of the longest name of a cluster that is shown whole in its row."""
_RUN = (Column(), Column())
_FIGURES = (Column("step", 1, right=True), Column("loss", 2, right=True))
_ACTIVE = (
    *_RUN,
    Column("tasks", 1, right=True),
    Column("hosts", 3, right=True),
    *_FIGURES,
    Column("elapsed", 2, right=True),
)
_PAST = (*_RUN, Column("took", 2, right=True), *_FIGURES, Column("started", 3, right=True))
_CLUSTERS = (Column(least=16), Column("tasks and hosts"), Column("changed", 1, right=True))
_DEMOS = (Column(least=16),)


@dataclass(frozen=True)
class Rows:
    """Makes the list: titles of sections, and below each its rows, aligned, in `width` cells."""

    width: int
    now: float
    colours: Colours
    accent: str

    def options(self, entries: Entries, no_clusters: str) -> list[Option]:
        """The list; rows have the keys of their entries. `no_clusters` stands in for clusters."""
        result: list[Option] = []
        sections: list[tuple[str, Sequence[Column], Sequence[Entry]]] = [
            ("Active runs", _ACTIVE, entries.active),
            ("Clusters", _CLUSTERS, entries.clusters),
            ("Past runs", _PAST, entries.past),
            ("Demos", _DEMOS, entries.demos),
        ]
        for title, columns, section in sections:
            if not section and title != "Clusters":
                continue
            result += [Option("", disabled=True)] if result else []
            lines = [self._line(entry) for entry in section]
            table = Columns(columns, lines, self.width - _INDENT)
            head = Text(no_wrap=True, end="")
            head.append(title, f"bold {self.accent}")
            head.append(f" {len(section)}" if section else "", "dim")
            result.append(Option(table.titles(head, _INDENT), disabled=True))
            if not section:
                result.append(Option(Text(f"  {no_clusters}", "dim"), disabled=True))
            result += [
                Option(indented(table.row(line), _INDENT), id=entry.key)
                for entry, line in zip(section, lines, strict=True)
            ]
        return result

    def _line(self, entry: Entry) -> TableLine:
        match entry:
            case ClusterEntry():
                return self._cluster(entry)
            case DemoEntry():
                return TableLine([CellText(entry.name)], CellText(entry.about, "dim"))
            case RunEntry():
                return self._active(entry) if entry.active else self._past(entry)

    def _cluster(self, entry: ClusterEntry) -> TableLine:
        name = CellText(_short(entry.path.stem, _NAME))
        if entry.cluster is None:
            more = f"  and {entry.problems - 1} more" if entry.problems > 1 else ""
            problem = f"! {entry.problem}{more}"
            return TableLine(
                [name, CellText(), CellText()], CellText(problem, self.colours[StatusColor.BAD])
            )
        changed, note = CellText(), CellText()
        if not entry.saved:
            note = CellText(str(entry.path), "dim")
        elif entry.stamp is not None:
            changed = CellText(f"{age(self.now - entry.stamp.mtime_ns / 1e9)} ago", "dim")
        return TableLine([name, CellText(shape(entry.cluster)), changed], note)

    def _active(self, entry: RunEntry) -> TableLine:
        run, report = entry.summary, entry.report
        word, color = f"▸ {run.phase or 'active'}", StatusColor.GOOD
        if run.phase is not RunPhase.RUNNING:
            color = StatusColor.BUSY
        note = CellText(f"waits for {run.waiting}" if run.waiting else "", "dim")
        live = run.live
        if entry.launcher is None:
            word, color = "? asking hosts" if report is None else "▸ unsupervised", StatusColor.BUSY
        lost = [host for host in report.hosts if host.unreachable] if report else []
        if report is not None and entry.launcher is None:
            live = sum(len(host.tasks) for host in report.hosts)
        if lost:
            word, color = "? unreachable", StatusColor.BAD
            told = "; ".join(f"{host.name}: {host.unreachable}" for host in lost)
            note = CellText(told, self.colours[StatusColor.BAD])
        fields = [
            CellText(word, f"bold {self.colours[color]}"),
            CellText(self._id(run.run_id)),
            CellText(f"{live}/{run.tasks}" if run.tasks else ""),
            CellText(str(len(run.hosts) or "")),
            *_figures(run),
            CellText(clock(self.now - run.started), "dim"),
        ]
        return TableLine(fields, note)

    def _past(self, entry: RunEntry) -> TableLine:
        run = entry.summary
        mark, color = outcome_mark(run.outcome, clean=run.clean)
        fields = [
            CellText(f"{mark} {run.outcome or 'unknown'}", self.colours[color]),
            CellText(self._id(run.run_id)),
            CellText(clock((run.ended or run.last) - run.started) if run.started else ""),
            *_figures(run),
            CellText(f"{age(self.now - run.started)} ago" if run.started else "", "dim"),
        ]
        told = [f"! {run.problem}"] if run.problem else []
        told += [] if run.clean else [UNCONFIRMED]
        told += [run.first_failure] if run.first_failure else []
        return TableLine(fields, CellText("  ".join(told), self.colours[StatusColor.BAD]))

    def _id(self, run_id: str) -> str:
        """A run's id; on a small screen its beginning and what tells it from its like."""
        if self.width >= NARROW or len(run_id) <= 18:
            return run_id
        return f"{run_id[:12]}…{run_id[-5:]}"


def _figures(run: RunSummary) -> list[CellText]:
    step = "" if run.step is None else thousands(run.step)
    return [CellText(step), CellText("" if run.loss is None else figure(run.loss))]


def shape(cluster: ClusterModel) -> str:
    """`1 ps + 3 workers on 4 hosts`."""
    jobs = []
    for name, job in cluster.jobs.items():
        count = len(job.tasks)
        plural = "s" if count > 1 and name in ("worker", "evaluator", "chief") else ""
        jobs.append(f"{count} {name}{plural}")
    hosts = {place.host for job in cluster.jobs.values() for place in job.tasks}
    where = counted(len(hosts), "host") if len(hosts) > 1 else next(iter(hosts), "")
    if all(cluster.is_local(host) for host in hosts):
        where = "this machine"
    if (engine := cluster.slurm) is not None:
        where = f"{counted(engine.nodes, 'node')} of {engine.label}"
    return f"{' + '.join(jobs)} on {where}"


def detail(entry: Entry, colours: Colours) -> Text:
    """Details of a row, shown beside the list."""
    text = Text()
    bad = colours[StatusColor.BAD]
    match entry:
        case ClusterEntry():
            text.append(f"{entry.path.stem}\n\n", "bold")
            _pair(text, "file", str(entry.path))
            if entry.cluster is None:
                text.append(f"\n! {entry.problem}\n", bad)
                if entry.problems > 1:
                    text.append(f"and {entry.problems - 1} more: see the editor\n", "dim")
            else:
                _append_jobs(text, entry.cluster)
        case DemoEntry():
            text.append(f"demo {entry.name}\n\n", "bold")
            text.append(f"{entry.about}\n\n")
            text.append("Runs on this machine, without configuration.", "dim")
        case RunEntry():
            _append_run(text, entry, bad)
    return text


def _pair(text: Text, key: str, value: str, style: str = "") -> None:
    text.append(f"{key:<9} ", "dim")
    text.append(f"{value}\n", style)


def _append_run(text: Text, entry: RunEntry, bad: str) -> None:
    run = entry.summary
    text.append(f"{run.run_id}\n\n", "bold")
    started = time.localtime(run.started)
    _pair(text, "started", time.strftime("%Y-%m-%d %H:%M:%S", started))
    if run.ended is not None:
        _pair(text, "took", clock(run.ended - run.started))
    if run.outcome is not None:
        _pair(text, "outcome", f"{run.outcome}, exit code {run.exit_code}")
    elif not entry.active:
        _pair(text, "outcome", "no end was recorded: its launcher died", bad)
    if run.problem:
        _pair(text, "record", run.problem, bad)
    if run.step is not None:
        _pair(text, "step", thousands(run.step))
    if run.loss is not None:
        _pair(text, "loss", figure(run.loss))
    if run.first_failure:
        _pair(text, "first", run.first_failure, bad)
    if entry.active:
        _pair(text, "launcher", f"pid {entry.launcher}" if entry.launcher else "none")
        _pair(text, "tasks", f"{run.live} of {run.tasks} have a process")
        _pair(text, "hosts", " ".join(run.hosts))
    _pair(text, "folder", str(run.folder.path))
    for host in entry.report.hosts if entry.report else ():
        text.append(f"\n{host.name}  ", "bold")
        if host.unreachable:
            text.append(f"unreachable: {host.unreachable}", bad)
        else:
            text.append(" ".join(map(str, host.tasks)) or "no task")
    text.append("\n")


def _append_jobs(text: Text, cluster: ClusterModel) -> None:
    for name, job in cluster.jobs.items():
        more = f"  and {len(job.tasks) - 12} more" if len(job.tasks) > 12 else ""
        _pair(text, name, "  ".join(map(str, job.tasks[:12])) + more)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
