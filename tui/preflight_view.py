"""Results of a preflight as tables and text, the same for `tfmux check` and its screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from launcher.cluster.spec import ClusterModel
from launcher.preflight import CHECKS, Check, Finding, Reach, Reachability, Severity
from launcher.quantities import counted
from tui.cells import Cell, Row
from tui.format import StatusColor

Colours = Mapping[StatusColor, str]
MARKS = {
    Severity.OK: ("✓", StatusColor.GOOD),
    Severity.WARN: ("!", StatusColor.BUSY),
    Severity.ERROR: ("✗", StatusColor.BAD),
}
_REACH_MARKS: dict[Reach, tuple[str, StatusColor | None]] = {
    Reach.OK: ("✓", StatusColor.GOOD),
    Reach.SLOW: ("!", StatusColor.BUSY),
    Reach.UNKNOWN: ("?", None),
}
_NOTHING = Cell("", "–")


@dataclass(frozen=True)
class CheckResults:
    """Findings and connections, all or as many as have come so far."""

    hosts: Sequence[str]
    findings: Sequence[Finding]
    pairs: Sequence[Reachability]
    checks: Sequence[Check] = CHECKS

    def count(self, severity: Severity) -> int:
        """Number of findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def about(self, host: str, check: Check) -> list[Finding]:
        """Findings of a check on a host, the worst first."""
        found = [f for f in self.findings if f.host == host and f.check is check]
        return sorted(found, key=lambda finding: -finding.severity.rank)

    def about_pair(self, pair: Reachability) -> list[Finding]:
        """Findings that say why a host does or does not reach a task."""
        return [finding for finding in self.findings if pair.explained_by(finding)]

    def pair(self, source: str, task: str) -> Reachability | None:
        """The connection from a host to a task, if the cluster needs it and it was tried."""
        found = (p for p in self.pairs if p.source == source and str(p.task) == task)
        return next(found, None)

    @property
    def sources(self) -> list[str]:
        """Hosts that connect, in the order of the hosts."""
        connecting = {pair.source for pair in self.pairs}
        return [host for host in self.hosts if host in connecting]


def checks_table(results: CheckResults) -> tuple[list[str], list[Row]]:
    """Headings and rows of the table of checks: a row for each check, a column for each host."""
    worst: dict[tuple[str, Check], Finding] = {}
    for finding in results.findings:
        before = worst.get((finding.host, finding.check))
        if before is None or finding.severity.rank > before.severity.rank:
            worst[finding.host, finding.check] = finding
    rows = []
    for check in results.checks:
        cells = (_finding_cell(worst.get((host, check))) for host in results.hosts)
        rows.append(Row(str(check), (Cell(str(check)), *cells)))
    return ["check", *results.hosts], rows


def reach_table(results: CheckResults, *, bad_only: bool = False) -> tuple[list[str], list[Row]]:
    """Tasks down, the hosts that connect to them across."""
    pairs = {(pair.source, pair.task): pair for pair in results.pairs}
    tasks = {pair.task: pair.address for pair in results.pairs}
    if bad_only:
        bad = {pair.task for pair in results.pairs if pair.reach is not Reach.OK}
        tasks = {task: address for task, address in tasks.items() if task in bad}
    sources = results.sources
    rows = []
    for task, address in tasks.items():
        cells = (_reach_cell(pairs.get((source, task))) for source in sources)
        rows.append(Row(str(task), (Cell(f"{task} {address}"), *cells)))
    return ["to", *(f"from {source}" for source in sources)], rows


def finding_text(finding: Finding, colours: Colours) -> Text:
    """Sentence of a finding, and what to do about it."""
    mark, color = MARKS[finding.severity]
    text = Text()
    text.append(f"{mark} ", colours[color])
    text.append(f"{finding.host}: {finding.sentence}\n")
    if finding.todo:
        text.append(f"  → {finding.todo}", "bold")
    if finding.severity is not Severity.OK:
        text.append(f"  [{finding.code}]\n", "dim")
    return text


def verdict(results: CheckResults, colours: Colours) -> Text:
    """Whether a launch would fail, with the number of errors and warnings."""
    errors, warnings = results.count(Severity.ERROR), results.count(Severity.WARN)
    text = Text()
    if errors:
        text.append("✗ a launch would fail", f"bold {colours[StatusColor.BAD]}")
        text.append(f"   {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    else:
        text.append("✓ ready to launch", f"bold {colours[StatusColor.GOOD]}")
        text.append(f"   {counted(warnings, 'warning')}" if warnings else "")
    return text


def nodes_text(cluster: ClusterModel) -> str:
    """The nodes of a cluster whose hosts an engine has yet to give, with their tasks."""
    table = cluster.slurm
    assert table is not None
    tasks: dict[str, list[str]] = {name: [] for name in table.node_names}
    for job, entry in cluster.jobs.items():
        for index, place in enumerate(entry.tasks):
            tasks.setdefault(place.host, []).append(f"{job}:{index}")
    width = max(map(len, tasks))
    lines = [f"{name:<{width}}  {', '.join(on) or 'no tasks'}" for name, on in tasks.items()]
    count = counted(table.nodes, "node")
    head = f"{count} of {table.label}; what is on them is checked when the run has them:"
    return "\n".join([head, *lines]) + "\n"


def in_order(pairs: Iterable[Reachability]) -> list[Reachability]:
    """Connections in the order of their tasks."""
    return sorted(pairs, key=lambda pair: (pair.task.job, pair.task.index))


def _finding_cell(finding: Finding | None) -> Cell:
    if finding is None:
        return _NOTHING
    mark, color = MARKS[finding.severity]
    return Cell(f"{mark} {finding.brief}", color=color)


def _reach_cell(pair: Reachability | None) -> Cell:
    if pair is None:
        return _NOTHING
    mark, color = _REACH_MARKS.get(pair.reach, ("✗", StatusColor.BAD))
    outcome = str(pair.reach).replace("-", " ")
    brief = f"{pair.seconds * 1000:.0f} ms" if pair.reach is Reach.OK else outcome
    return Cell(f"{mark} {brief}", color=color)
