"""The rows of the home screen, and what is told beside them, as text of a given width."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.text import Text

from launcher.cluster.spec import Cluster
from launcher.quantities import age, thousands
from launcher.run.states import Outcome
from tui.catalog import ClusterEntry, DemoEntry, Entry, RunEntry
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
        """One row."""
        match entry:
            case ClusterEntry():
                return self._cluster(entry)
            case DemoEntry():
                return self._cut((f"  {entry.name:<16}  ", ""), (entry.about, "dim"))
            case RunEntry() if entry.lives:
                return self._living(entry)
            case RunEntry():
                return self._past(entry)

    def _cluster(self, entry: ClusterEntry) -> Text:
        name = f"{_short(entry.path.stem, 24):<24}"
        if entry.cluster is None:
            more = f"  and {entry.problems - 1} more" if entry.problems > 1 else ""
            problem = f"⚠ {entry.problem}{more}"
            return self._cut((f"  {name}  ", ""), (problem, self.colours[StatusColor.BAD]))
        parts = [Part(0, name), Part(1, shape(entry.cluster))]
        if not entry.saved:
            parts.append(Part(2, str(entry.path), "dim"))
        elif entry.stamp is not None:
            ago = age(self.now - entry.stamp.mtime_ns / 1e9)
            parts.append(Part(3, f"changed {ago} ago", "dim"))
        return self._line(*parts)

    def _living(self, entry: RunEntry) -> Text:
        told, living = entry.summary, entry.living
        style = f"bold {self.colours[StatusColor.GOOD]}"
        word = "▶ lives"
        if entry.launcher is None and living is None:
            word, style = "? asking its hosts", self.colours[StatusColor.BUSY]
        elif entry.launcher is None:
            word, style = "▶ unsupervised", f"bold {self.colours[StatusColor.BUSY]}"
        if living is not None and any(host.unreachable for host in living.hosts):
            word, style = "? unreachable hosts", f"bold {self.colours[StatusColor.BAD]}"
        parts = [Part(0, f"{word:<16}", style), Part(0, self._id(told.run_id))]
        parts += self._figures(entry)
        parts.append(Part(3, f"since {age(self.now - told.started)}", "dim"))
        return self._line(*parts)

    def _past(self, entry: RunEntry) -> Text:
        told = entry.summary
        mark, color = (
            _MARKS.get(told.outcome, ("?", StatusColor.OFF))
            if told.outcome
            else ("?", StatusColor.OFF)
        )
        word = str(told.outcome) if told.outcome else "unknown"
        if not told.clean:
            mark, word, color = "⚠", "unconfirmed", StatusColor.BAD
        parts = [Part(0, f"{mark} {word:<11}", self.colours[color]), Part(0, self._id(told.run_id))]
        parts.append(Part(2, f"{clock((told.ended or told.last) - told.started):>7}"))
        parts += self._figures(entry)
        parts.append(Part(3, f"{age(self.now - told.started)} ago", "dim"))
        if told.problem:
            parts.append(Part(0, f"⚠ {told.problem}", self.colours[StatusColor.BAD]))
        if told.first_failure:
            parts.append(Part(4, told.first_failure, self.colours[StatusColor.BAD]))
        return self._line(*parts)

    def _id(self, run_id: str) -> str:
        """A run's id; on a small screen its beginning and what tells it from its like."""
        if self.width >= NARROW or len(run_id) <= 18:
            return run_id
        return f"{run_id[:12]}…{run_id[-5:]}"

    def _figures(self, entry: RunEntry) -> list[Part]:
        told = entry.summary
        parts = []
        if told.step is not None:
            parts.append(Part(1, f"step {thousands(told.step):>6}"))
        if told.loss is not None:
            parts.append(Part(2, f"loss {figure(told.loss):<6}"))
        return parts

    def _cut(self, *parts: tuple[str, str]) -> Text:
        row = Text.assemble(*parts, no_wrap=True, end="")
        row.truncate(self.width, overflow="ellipsis")
        return row

    def _line(self, *parts: Part) -> Text:
        row = fit(list(parts), self.width - 2)
        return Text("  ", no_wrap=True, end="").append_text(row)


def shape(cluster: Cluster) -> str:
    """`1 ps + 3 workers on 4 hosts`."""
    jobs = []
    for name, job in cluster.jobs.items():
        count = len(job.tasks)
        plural = "s" if count > 1 and name in ("worker", "evaluator", "chief") else ""
        jobs.append(f"{count} {name}{plural}")
    hosts = {place.host for job in cluster.jobs.values() for place in job.tasks}
    where = f"{len(hosts)} hosts" if len(hosts) > 1 else next(iter(hosts), "")
    if all(cluster.is_local(host) for host in hosts):
        where = "this machine"
    return f"{' + '.join(jobs)} on {where}"


def detail(entry: Entry, now: float, colours: Colours) -> Text:
    """What is told about a row beside the list."""
    text = Text()

    def pair(key: str, value: str, style: str = "") -> None:
        text.append(f"{key:<9} ", "dim")
        text.append(f"{value}\n", style)

    match entry:
        case ClusterEntry():
            text.append(f"{entry.path.stem}\n\n", "bold")
            pair("file", str(entry.path))
            if entry.cluster is None:
                text.append(f"\n⚠ {entry.problem}\n", colours[StatusColor.BAD])
                if entry.problems > 1:
                    text.append(f"and {entry.problems - 1} more; Enter shows them\n", "dim")
            else:
                _tell_cluster(text, entry.cluster)
        case DemoEntry():
            text.append(f"demo {entry.name}\n\n", "bold")
            text.append(f"{entry.about}\n\n")
            text.append("Runs on this machine alone; nothing is to be configured.", "dim")
        case RunEntry():
            told = entry.summary
            text.append(f"{told.run_id}\n\n", "bold")
            pair("started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told.started)))
            if told.ended is not None:
                pair("took", clock(told.ended - told.started))
            if told.outcome is not None:
                pair("outcome", f"{told.outcome}, exit code {told.exit_code}")
            elif not entry.lives:
                pair(
                    "outcome",
                    "no end was written down: its launcher died",
                    colours[StatusColor.BAD],
                )
            if told.problem:
                pair("record", told.problem, colours[StatusColor.BAD])
            if told.step is not None:
                pair("step", thousands(told.step))
            if told.loss is not None:
                pair("loss", figure(told.loss))
            if told.first_failure:
                pair("first", told.first_failure, colours[StatusColor.BAD])
            if entry.lives:
                pair("launcher", f"pid {entry.launcher}" if entry.launcher else "none")
            pair("folder", str(told.folder.path))
            _tell_hosts(text, entry, colours)
    return text


def _tell_cluster(text: Text, cluster: Cluster) -> None:
    for name, job in cluster.jobs.items():
        text.append(f"\n{name}\n", "bold")
        for place in job.tasks[:12]:
            text.append(f"  {place}\n")
        if len(job.tasks) > 12:
            text.append(f"  and {len(job.tasks) - 12} more\n", "dim")


def _tell_hosts(text: Text, entry: RunEntry, colours: Colours) -> None:
    for host in entry.living.hosts if entry.living else ():
        text.append(f"\n{host.name}  ", "bold")
        if host.unreachable:
            text.append(f"unreachable: {host.unreachable}", colours[StatusColor.BAD])
        else:
            text.append(" ".join(str(task) for task in host.tasks) or "no task")
    text.append("\n")


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
