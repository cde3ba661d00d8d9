"""Report of a preflight as tables and text, the same for `tfmux check` and its screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.shorthand.understood import shown_names
from launcher.masking import mask
from launcher.preflight import Check, Finding, Reach, Reachability, Report, Severity
from launcher.preflight.repairs import FindingGroup, grouped
from launcher.quantities import counted
from tui.format import StatusColor
from tui.tables import NOTHING, TableRow

Colours = Mapping[StatusColor, str]
MARKS = {
    Severity.OK: ("✓", StatusColor.GOOD),
    Severity.WARN: ("!", StatusColor.BUSY),
    Severity.ERROR: ("✗", StatusColor.BAD),
}
_REACH_MARKS: dict[Reach, tuple[str, StatusColor]] = {
    Reach.OK: ("✓", StatusColor.GOOD),
    Reach.SLOW: ("!", StatusColor.BUSY),
    Reach.UNKNOWN: ("?", StatusColor.OFF),
}

_WIDEST = 22
"""Cells of a finding in the table; its sentence is told in full elsewhere."""


def count(report: Report, severity: Severity) -> int:
    """Number of findings of a severity, equal ones of several hosts being one."""
    return len(grouped([each for each in report.findings if each.severity is severity]))


def about(report: Report, host: str, check: Check) -> list[Finding]:
    """Findings of a check on a host, the worst first."""
    found = [f for f in report.findings if f.host == host and f.check is check]
    return sorted(found, key=lambda finding: -finding.severity.rank)


def about_pair(report: Report, pair: Reachability) -> list[Finding]:
    """Findings that say why a host does or does not reach a task."""
    return [finding for finding in report.findings if pair.explained_by(finding)]


def sources(report: Report) -> list[str]:
    """Hosts that connect to tasks, in the order of the hosts."""
    connecting = {pair.source for pair in report.reachability}
    return [host for host in report.hosts if host in connecting]


def checks_table(
    report: Report, colours: Colours, widest: int = _WIDEST
) -> tuple[list[str], list[TableRow]]:
    """Titles and rows of the table of checks: a row for each check, a column of at most `widest`
    cells for each host."""
    worst: dict[tuple[str, Check], Finding] = {}
    for finding in report.findings:
        before = worst.get((finding.host, finding.check))
        if before is None or finding.severity.rank > before.severity.rank:
            worst[finding.host, finding.check] = finding

    def cell(host: str, check: Check) -> Text:
        finding = worst.get((host, check))
        if finding is None:
            return Text(NOTHING, "dim")
        mark, color = MARKS[finding.severity]
        calm = finding.severity is Severity.OK
        text = Text.assemble((mark, colours[color]), " ")
        text.append(finding.brief, "dim" if calm else colours[color])
        text.truncate(widest, overflow="ellipsis")
        return text

    def title(host: str) -> str:
        text = Text(host)
        text.truncate(widest, overflow="ellipsis")
        return text.plain

    rows = [
        TableRow(check, [Text(check), *(cell(host, check) for host in report.hosts)])
        for check in report.checks
    ]
    return ["check", *map(title, report.hosts)], rows


def reach_table(
    report: Report, colours: Colours, *, bad_only: bool = False
) -> tuple[list[str], list[TableRow]]:
    """Tasks down, the hosts that connect to them across."""
    pairs = {(pair.source, pair.task): pair for pair in report.reachability}
    tasks = {pair.task: pair.address for pair in report.reachability}
    if bad_only:
        bad = {pair.task for pair in report.reachability if pair.reach is not Reach.OK}
        tasks = {task: address for task, address in tasks.items() if task in bad}
    across = sources(report)

    def cell(pair: Reachability | None) -> Text:
        if pair is None:
            return Text(NOTHING, "dim")
        mark, color = _REACH_MARKS.get(pair.reach, ("✗", StatusColor.BAD))
        outcome = str(pair.reach).replace("-", " ")
        brief = f"{pair.seconds * 1000:.0f} ms" if pair.reach is Reach.OK else outcome
        calm = pair.reach is Reach.OK
        return Text.assemble(
            (mark, colours[color]), (f" {brief}", "dim" if calm else colours[color])
        )

    rows = [
        TableRow(
            str(task),
            [Text(f"{task} {address}"), *(cell(pairs.get((host, task))) for host in across)],
        )
        for task, address in sorted(tasks.items())
    ]
    return ["to", *(f"from {host}" for host in across)], rows


def group_text(group: FindingGroup, colours: Colours) -> Text:
    """Sentence of equal findings, with their hosts, and what to do about them."""
    finding, offers = group.first, group.offers
    mark, color = MARKS[finding.severity]
    bad = finding.severity is not Severity.OK
    text = Text()
    text.append(f"{mark} ", colours[color])
    text.append(shown_names(group.hosts, LOCALHOST), "bold" if bad else "")
    text.append(f": {mask(finding.sentence)}\n")
    if finding.todo:
        text.append(f"  → {mask(finding.todo)}", "bold")
    if len(set(offers.values())) > 1:
        others = (f"{host}: {path}" for host, path in list(offers.items())[1:])
        text.append(f"; {mask(', '.join(others))}", "bold")
    if bad:
        text.append(f"  [{finding.code}]\n", "dim")
    return text


def verdict(report: Report, colours: Colours) -> Text:
    """Whether a launch would fail, with the number of errors and warnings."""
    errors, warnings = count(report, Severity.ERROR), count(report, Severity.WARN)
    text = Text()
    if errors:
        text.append("✗ a launch would fail", f"bold {colours[StatusColor.BAD]}")
        text.append(f"   {counted(errors, 'error')}")
    else:
        text.append("✓ ready to launch", f"bold {colours[StatusColor.GOOD]}")
    if warnings:
        text.append(f"{', ' if errors else '   '}{counted(warnings, 'warning')}")
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
    nodes = counted(table.nodes, "node")
    head = f"{nodes} of {table.label}; what is on them is checked when the run has them:"
    return "\n".join([head, *lines]) + "\n"
