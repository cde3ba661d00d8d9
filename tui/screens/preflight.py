"""The preflight, filling as it goes: hosts across, checks down, and who reaches whom."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from launcher.cluster.spec import Cluster
from launcher.errors import TfmuxError
from launcher.preflight import (
    CHECKS,
    LOGIN_CHECKS,
    Check,
    Finding,
    Pair,
    Reach,
    Report,
    Severity,
    preflight,
)
from launcher.session.attach import stored
from launcher.session.history import summary
from tui.keys import key_of
from tui.screens.kill_living import KillLiving
from tui.screens.page import Page
from tui.screens.prompts import Asker
from tui.sessions import Sessions
from tui.shelf import RunEntry
from tui.widgets.cell_grid import Cell, CellGrid, Row
from tui.widgets.colours import mood_colours, theme_colour
from tui.widgets.footer import KeyFooter
from tui.words import Mood

FRAME = 0.1
CELL = 22
"""Cells of width of a column at most; the cell under the cursor is told in full."""
_MARKS = {Severity.OK: ("✓", "good"), Severity.WARN: ("!", "busy"), Severity.ERROR: ("✗", "bad")}
_REACHED = {Reach.OK: ("✓", "good"), Reach.SLOW: ("!", "busy"), Reach.UNKNOWN: ("?", "")}


class PreflightScreen(Page):
    """Looks at every host of a cluster; starts nothing."""

    CSS_PATH = "preflight.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "other_table", "Checks or reachability", id="check.other"),
        Binding("e", "finding(1)", "Next finding", id="check.next"),
        Binding("E", "finding(-1)", "Previous finding", id="check.previous"),
        Binding("x", "end_leftovers", "End leftovers of a dead run", id="check.leftovers"),
        Binding("f5,r", "again", "Look again", id="check.again"),
        Binding("escape", "app.leave", "Back", id="check.back"),
    ]

    def __init__(self, cluster: Cluster, file: Path, sessions: Sessions, asker: Asker) -> None:
        super().__init__()
        self._cluster = cluster
        self._file = file
        self._sessions = sessions
        self._asker = asker
        tasks = [place.host for job in cluster.jobs.values() for place in job.tasks]
        self._hosts = list(dict.fromkeys(tasks))
        self._lock = threading.Lock()
        self._found: list[Finding | Pair] = []
        """What has come; appended to by the preflight's own thread."""
        self._sources: list[str] = []
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._shown = -1
        self._report: Report | None = None
        self._over = False
        """The report has been shown."""
        self._failed = ""
        self._began = 0.0
        self._looking: tuple[asyncio.AbstractEventLoop, asyncio.Task[Report]] | None = None

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(id="title", markup=False)
        yield CellGrid("", 1, CELL)
        yield CellGrid("who reaches whom is looked at when the hosts are logged in to", 1)
        yield Static(id="told", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        self._checks, self._matrix = self.query(CellGrid)
        self._matrix.id = "matrix"
        self.set_focus(self._checks)
        self.set_interval(FRAME, self._frame)
        self.action_again()

    def on_unmount(self) -> None:
        self._stop()

    # looking

    def action_again(self) -> None:
        """Looks at everything from the start."""
        self._stop()
        with self._lock:
            self._found = []
        self._report, self._failed, self._shown = None, "", -1
        self._over = False
        self._began = time.monotonic()
        self._look(self._found)

    @work(thread=True, exclusive=True, group="preflight", exit_on_error=False)
    def _look(self, found: list[Finding | Pair]) -> None:
        # A loop of its own: many logins at once must not slow the keys.
        try:
            report = asyncio.run(self._main(found))
        except asyncio.CancelledError:
            return
        except (TfmuxError, OSError, ExceptionGroup) as error:
            self._failed = str(error)
            return
        if found is self._found:
            self._report = report

    async def _main(self, found: list[Finding | Pair]) -> Report:
        task = asyncio.create_task(preflight(self._cluster, self._asker, found.append))
        self._looking = (asyncio.get_running_loop(), task)
        return await task

    def _stop(self) -> None:
        """Ends a look that goes on; its agents are sent away."""
        if self._looking is not None:
            loop, task = self._looking
            self._looking = None
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    # showing

    def _frame(self) -> None:
        self._show_title()
        count = len(self._found)
        if count != self._shown:
            self._shown = count
            self._show_tables(list(self._found))
            self._tell()
        if self._report is not None and not self._over:
            self._over = True
            at_rest = self._checks.has_focus and (self._checks.row, self._checks.column) == (0, 1)
            if at_rest and (bad := self._bad()):
                self._checks.go_to(*bad[0])  # what to do about it is read at once

    def _show_title(self) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"preflight of {self._cluster.name}   ", "bold")
        colours = mood_colours(self.app)
        found = [each for each in list(self._found) if isinstance(each, Finding)]
        errors = sum(each.severity is Severity.ERROR for each in found)
        warnings = sum(each.severity is Severity.WARN for each in found)
        if self._failed:
            text.append(f"✗ {self._failed}", colours[Mood.BAD])
        elif self._report is None:
            text.append(f"looking, {time.monotonic() - self._began:.0f} s", colours[Mood.BUSY])
        elif errors:
            text.append("✗ a launch would fail", f"bold {colours[Mood.BAD]}")
        else:
            text.append("✓ nothing stands in the way", f"bold {colours[Mood.GOOD]}")
        if errors or warnings:
            text.append(f"   {_count(errors, 'error')}, {_count(warnings, 'warning')}")
        if self._report is not None:
            text.append(f"   {self._report.seconds:.1f} s", "dim")
        self.query_one("#title", Static).update(text)

    def _show_tables(self, found: list[Finding | Pair]) -> None:
        worst: dict[tuple[str, Check], Finding] = {}
        pairs: dict[tuple[str, str], Pair] = {}
        tasks: dict[str, str] = {}
        for each in found:
            if isinstance(each, Pair):
                pairs[each.source, str(each.task)] = each
                tasks[str(each.task)] = each.address
            else:
                before = worst.get((each.host, each.check))
                if before is None or each.severity.rank > before.severity.rank:
                    worst[each.host, each.check] = each
        rows = [
            Row(
                str(check), (Cell(str(check)), *(_cell(worst.get((h, check))) for h in self._hosts))
            )
            for check in CHECKS
        ]
        self._checks.show(("check", *self._hosts), rows)
        self._worst = worst
        sources = [host for host in self._hosts if any(source == host for source, _ in pairs)]
        matrix = [
            Row(name, (Cell(f"{name} {address}"), *(_reach(pairs.get((s, name))) for s in sources)))
            for name, address in sorted(tasks.items())
        ]
        self._matrix.show(("to", *(f"from {source}" for source in sources)), matrix)
        self._sources, self._pairs = sources, pairs

    def _here(self) -> Iterator[Finding]:
        """The findings that the cell under the cursor is about, the worst first."""
        findings = [each for each in list(self._found) if isinstance(each, Finding)]
        findings.sort(key=lambda each: -each.severity.rank)
        if self._matrix.has_focus and self._matrix.rows:
            task = self._matrix.rows[self._matrix.row].key
            source = self._sources[min(self._matrix.column, len(self._sources)) - 1]
            for each in findings:
                if each.host == source and each.check is Check.REACH and task in each.sentence:
                    yield each
        elif self._checks.rows and self._hosts:
            host = self._hosts[min(self._checks.column, len(self._hosts)) - 1]
            check = CHECKS[self._checks.row]
            yield from (each for each in findings if (each.host, each.check) == (host, check))

    def _nothing_here(self) -> str:
        """Why the cell under the cursor has no finding."""
        if not self._matrix.has_focus or not self._matrix.rows:
            host = self._hosts[self._checks.column - 1] if self._hosts else ""
            if CHECKS[self._checks.row] in LOGIN_CHECKS and self._cluster.is_local(host):
                return f"{host} is this machine: nothing to look up, nothing to log in to"
            return "not looked at" if self._report else "not looked at yet"
        task = self._matrix.rows[self._matrix.row].key
        source = self._sources[min(self._matrix.column, len(self._sources)) - 1]
        pair = self._pairs.get((source, task))
        if pair is None:
            return f"{source} needs no connection to {task}"
        if pair.reach is Reach.UNKNOWN:
            return f"not tried: {source} or {pair.target} could not be asked"
        resolved = f" ({pair.resolved})" if pair.resolved else ""
        return f"{source} reaches {task} at {pair.address}{resolved}"

    @on(CellGrid.Moved)
    def _tell(self) -> None:
        text = Text()
        for each in self._here():
            mark, mood = _MARKS[each.severity]
            text.append(f"{mark} ", theme_colour(self.app, f"mood-{mood}"))
            text.append(f"{each.host}: {each.sentence}\n")
            if each.todo:
                text.append(f"  → {each.todo}", "bold")
                text.append(f"  [{each.code}]\n", "dim")
        text.rstrip()
        self.query_one("#told", Static).update(text or Text(self._nothing_here(), "dim"))
        keys = [("e", "next finding"), ("Tab", "who reaches whom"), ("F5", "look again")]
        if any(each.run for each in self._here()):
            keys.insert(0, ("x", "end them"))
        self.query_one(KeyFooter).show(
            [*keys, ("Esc", "back"), (key_of(self, "kill_all"), "kill all")]
        )

    def on_descendant_focus(self) -> None:
        """The other table's cell is told about."""
        if self._shown >= 0:
            self._tell()

    # actions

    def action_other_table(self) -> None:
        """Between the checks and the matrix."""
        self.set_focus(self._matrix if self._checks.has_focus else self._checks)

    def _bad(self) -> list[tuple[int, int]]:
        """Row and column of the cells that are not right, host after host."""
        bad = [
            (CHECKS.index(check), self._hosts.index(host) + 1)
            for (host, check), each in self._worst.items()
            if each.severity is not Severity.OK and host in self._hosts
        ]
        return sorted(bad, key=lambda place: (place[1], place[0]))

    def action_finding(self, by: int) -> None:
        """To the next or previous cell that is not right."""
        bad = self._bad()
        if not bad:
            self.notify("nothing is wrong" if self._report else "nothing is wrong so far")
            return
        here = (self._checks.column, self._checks.row)
        after = [place for place in bad if (place[1], place[0]) > here]
        before = [place for place in bad if (place[1], place[0]) < here]
        place = (after or bad)[0] if by > 0 else (before or bad)[-1]
        self.set_focus(self._checks)
        self._checks.go_to(*place)

    def action_end_leftovers(self) -> None:
        """Ends what a dead run has left, after one question."""
        entries = []
        for run in sorted({each.run for each in self._here() if each.run}):
            try:  # another machine may have launched it from this very file
                entries.append(RunEntry(summary(stored(run, self._file).folder), None))
            except TfmuxError as error:
                self.notify(str(error), severity="error")
        if entries:
            dialog = KillLiving(entries, self._sessions, self._asker)
            self.app.push_screen(dialog, lambda _: self.action_again())


def _cell(finding: Finding | None) -> Cell:
    if finding is None:
        return Cell("", "–")
    mark, mood = _MARKS[finding.severity]
    return Cell(f"{mark} {finding.brief}", mood=mood)


def _reach(pair: Pair | None) -> Cell:
    if pair is None:
        return Cell("", "–")
    mark, mood = _REACHED.get(pair.reach, ("✗", "bad"))
    brief = f"{pair.seconds * 1000:.0f} ms" if pair.reach is Reach.OK else str(pair.reach)
    return Cell(f"{mark} {brief}", mood=mood)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
