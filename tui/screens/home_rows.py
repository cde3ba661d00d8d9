"""Rows of the home screen, and the details of one of them, as text of a given width."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.widgets.option_list import Option

from launcher.cluster.spec import Cluster
from launcher.quantities import age, counted, thousands
from launcher.run.states import Outcome
from tui.catalog import ClusterEntry, DemoEntry, Entries, Entry, RunEntry
from tui.format import StatusColor, clock, figure
from tui.widgets.fit import Part, fit

Colours = dict[StatusColor, str]
NARROW = 90
"""Cells of width below which step and loss matter more than the whole of a run's id."""
_MARKS = {
    Outcome.SUCCESS: ("✓", StatusColor.GOOD),
    Outcome.FAILED: ("✗", StatusColor.BAD),
    Outcome.PREFLIGHT: ("✗", StatusColor.BAD),
    Outcome.KILLED: ("■", StatusColor.OFF),
    Outcome.TERMINATED: ("■", StatusColor.OFF),
}


def options(rows: Rows, entries: Entries, no_clusters: str) -> list[Option]:
    """The list: titles and rows, the latter with the keys of their entries."""
    sections: list[tuple[str, Sequence[Entry]]] = [
        ("Clusters", entries.clusters),
        ("Active runs", entries.active),
        ("Past runs", entries.past),
        ("Demos", entries.demos),
    ]
    result: list[Option] = []
    for title, section in sections:
        if not section and title != "Clusters":
            continue
        result += [Option("", disabled=True)] if result else []
        result.append(Option(rows.title(title, len(section)), disabled=True))
        if not section:
            result.append(Option(Text(f"  {no_clusters}", "dim"), disabled=True))
        result += [Option(rows.row(entry), id=entry.key) for entry in section]
    return result


@dataclass(frozen=True)
class Rows:
    """Makes rows that fit."""

    width: int
    now: float
    colours: Colours

    def title(self, title: str, count: int) -> Text:
        """A section's title with a rule after it."""
        text = Text(no_wrap=True)
        text.append(f"{title} ", "bold")
        text.append(f"{count} " if count else "", "dim")
        text.append("─" * max(0, self.width - text.cell_len), "dim")
        return text

    def row(self, entry: Entry) -> Text:
        match entry:
            case ClusterEntry():
                return self._cluster(entry)
            case DemoEntry():
                return self._cut((f"  {entry.name:<16}  ", ""), (entry.about, "dim"))
            case RunEntry():
                return self._active(entry) if entry.active else self._past(entry)

    def _cluster(self, entry: ClusterEntry) -> Text:
        name = f"{_short(entry.path.stem, 24):<24}"
        if entry.cluster is None:
            more = f"  and {entry.problems - 1} more" if entry.problems > 1 else ""
            problem = f"! {entry.problem}{more}"
            return self._cut((f"  {name}  ", ""), (problem, self.colours[StatusColor.BAD]))
        parts = [Part(0, name), Part(1, shape(entry.cluster))]
        if not entry.saved:
            parts.append(Part(2, str(entry.path), "dim"))
        elif entry.stamp is not None:
            ago = age(self.now - entry.stamp.mtime_ns / 1e9)
            parts.append(Part(3, f"changed {ago} ago", "dim"))
        return self._line(*parts)

    def _active(self, entry: RunEntry) -> Text:
        run, report = entry.summary, entry.report
        word, color = "▸ active", StatusColor.GOOD
        if run.queued:
            word, color = "▸ queued", StatusColor.BUSY
        if report is not None and any(host.unreachable for host in report.hosts):
            word, color = "? unreachable hosts", StatusColor.BAD
        elif entry.launcher is None:
            word = "? asking its hosts" if report is None else "▸ unsupervised"
            color = StatusColor.BUSY
        parts = [
            Part(0, f"{word:<16}", f"bold {self.colours[color]}"),
            Part(0, self._id(run.run_id)),
            *_figures(entry),
            Part(3, f"since {age(self.now - run.started)}", "dim"),
        ]
        return self._line(*parts)

    def _past(self, entry: RunEntry) -> Text:
        run = entry.summary
        mark, color = "?", StatusColor.OFF
        if not run.clean:
            mark, word, color = "!", "unconfirmed", StatusColor.BAD
        elif run.outcome is None:
            word = "unknown"
        else:
            word = str(run.outcome)
            mark, color = _MARKS.get(run.outcome, (mark, color))
        bad = self.colours[StatusColor.BAD]
        parts = [
            Part(0, f"{mark} {word:<11}", self.colours[color]),
            Part(0, self._id(run.run_id)),
            Part(2, f"{clock((run.ended or run.last) - run.started):>7}"),
            *_figures(entry),
            Part(3, f"{age(self.now - run.started)} ago", "dim"),
        ]
        if run.problem:
            parts.append(Part(0, f"! {run.problem}", bad))
        if run.first_failure:
            parts.append(Part(4, run.first_failure, bad))
        return self._line(*parts)

    def _id(self, run_id: str) -> str:
        """A run's id; on a small screen its beginning and what tells it from its like."""
        if self.width >= NARROW or len(run_id) <= 18:
            return run_id
        return f"{run_id[:12]}…{run_id[-5:]}"

    def _cut(self, *parts: tuple[str, str]) -> Text:
        row = Text.assemble(*parts, no_wrap=True, end="")
        row.truncate(self.width, overflow="ellipsis")
        return row

    def _line(self, *parts: Part) -> Text:
        row = fit(list(parts), self.width - 2)
        return Text("  ", no_wrap=True, end="").append_text(row)


def _figures(entry: RunEntry) -> list[Part]:
    run = entry.summary
    parts = []
    if run.step is not None:
        parts.append(Part(1, f"step {thousands(run.step):>6}"))
    if run.loss is not None:
        parts.append(Part(2, f"loss {figure(run.loss):<6}"))
    return parts


def shape(cluster: Cluster) -> str:
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
    if (engine := cluster.engine) is not None:
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
    _pair(text, "folder", str(run.folder.path))
    for host in entry.report.hosts if entry.report else ():
        text.append(f"\n{host.name}  ", "bold")
        if host.unreachable:
            text.append(f"unreachable: {host.unreachable}", bad)
        else:
            text.append(" ".join(map(str, host.tasks)) or "no task")
    text.append("\n")


def _append_jobs(text: Text, cluster: Cluster) -> None:
    for name, job in cluster.jobs.items():
        text.append(f"\n{name}\n", "bold")
        for place in job.tasks[:12]:
            text.append(f"  {place}\n")
        if len(job.tasks) > 12:
            text.append(f"  and {len(job.tasks) - 12} more\n", "dim")


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
