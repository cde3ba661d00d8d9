"""Tables and texts of a preflight, made from its values alone."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from launcher.ids import TaskId
from launcher.preflight import Check, Finding, Reach, Reachability, Report, Severity
from tui.outcome import TERMINAL
from tui.preflight_view import about_pair, checks_table, reach_table, verdict
from tui.tables import NOTHING, TableRow, rich_tables


def pair(source: str, index: int, reach: Reach, target: str = "far") -> Reachability:
    return Reachability(source, TaskId("worker", index), target, f"{target}:{2000 + index}", reach)


def about(it: Reachability) -> Finding:
    """The finding that a failed connection makes."""
    code, sentence = f"reach-{it.reach}", f"{it.source} does not reach {it.address}"
    task = None if it.reach.by_name else it.task
    return Finding(
        Severity.ERROR, Check.REACH, code, it.source, "", sentence, task=task, other=it.target
    )


def report(
    hosts: Sequence[str], findings: Sequence[Finding], pairs: Sequence[Reachability]
) -> Report:
    """A report of a preflight with these results."""
    return Report("c", tuple(hosts), tuple(findings), tuple(pairs), (), 1.0)


def test_a_finding_belongs_to_its_own_task() -> None:
    """The one about worker:10 is not shown for worker:1."""
    good, bad = pair("near", 1, Reach.OK), pair("near", 10, Reach.REFUSED)
    results = report(["near", "far"], [about(bad)], [good, bad])
    assert about_pair(results, good) == []
    assert about_pair(results, bad) == [about(bad)]


def test_a_name_that_does_not_resolve_is_found_at_every_task_behind_it() -> None:
    """The name is reported once, and concerns all tasks of that host, for that source."""
    first, second = pair("near", 0, Reach.UNRESOLVED), pair("near", 1, Reach.UNRESOLVED)
    other, elsewhere = pair("near", 2, Reach.UNRESOLVED, "off"), pair("up", 1, Reach.UNRESOLVED)
    results = report(["near", "up"], [about(first)], [first, second, other, elsewhere])
    assert about_pair(results, second) == [about(first)]
    assert about_pair(results, other) == about_pair(results, elsewhere) == []


def test_tasks_are_in_the_order_of_their_numbers() -> None:
    """worker:2 before worker:10."""
    results = report(["a"], (), [pair("a", index, Reach.OK) for index in (10, 2, 1)])
    assert [row.key for row in reach_table(results, TERMINAL)[1]] == [
        "worker:1",
        "worker:2",
        "worker:10",
    ]


def test_the_worst_finding_of_a_check_is_its_cell() -> None:
    """An error wins over a warning, whichever came first."""
    findings = [
        Finding(severity, Check.DISK, "x", "a", str(severity), "")
        for severity in (Severity.WARN, Severity.ERROR, Severity.OK)
    ]
    results = report(["a"], findings, ())
    titles, rows = checks_table(results, TERMINAL)
    assert titles == ["check", "a"]
    assert [row.make()[1].plain for row in rows if row.key == "disk"] == ["✗ error"]
    assert verdict(results, TERMINAL).plain == "✗ a launch would fail   1 error, 1 warning"


def test_columns_that_do_not_fit_go_to_a_further_table() -> None:
    """Each table has the first column and fits the width; rows that say nothing are left out."""
    cells = [Text(text) for text in ("disk", *(f"✓ {n} GB free" for n in range(5)))]
    rows = [TableRow("disk", cells), TableRow("key", [Text("key"), *[Text(NOTHING)] * 5])]
    titles = ["check", *(f"host{number}" for number in range(5))]
    console = Console(file=io.StringIO(), width=40)
    for table in rich_tables(titles, rows, width=40, widest=22):
        console.print(table)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 6 and all(line.startswith(("check", "disk")) for line in lines)
    assert "✓ 4 GB free" in lines[-1] and max(map(len, lines)) <= 40
