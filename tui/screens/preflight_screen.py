"""Preflight screen: checks of every host and connections between hosts, shown as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import DataTable, Static

from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.shorthand.understood import shown_names
from launcher.errors import TfmuxError
from launcher.frozen import frozen
from launcher.history.run_list import read_run
from launcher.history.stored import stored_folder
from launcher.preflight import (
    CHECKS,
    ENGINE_CHECKS,
    LOGIN_CHECKS,
    Check,
    Finding,
    Reach,
    Reachability,
    Report,
    Severity,
)
from launcher.preflight.preflight import preflight
from launcher.preflight.repairs import FindingGroup, grouped
from launcher.quantities import counted
from tui.format import StatusColor, request_text
from tui.keys import key_of
from tui.preflight_view import (
    about,
    about_pair,
    checks_table,
    count,
    group_text,
    nodes_text,
    reach_table,
    sources,
    verdict,
)
from tui.run_clients import RunClients
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.page import Page
from tui.screens.prompt_dialogs import PromptDialogs
from tui.tables import NOTHING
from tui.widgets.colours import status_colours
from tui.widgets.footer import KeyFooter
from tui.widgets.table import Table

FRAME = 0.1
_NARROWEST = 12
"""Cells of a host's column; in narrower ones no finding could be read."""


@frozen
class Repair:
    """Settings of a cluster file that are to be changed, for the same reason."""

    settings: tuple[KeyPath, ...]
    values: Sequence[str]
    """Their new values; empty: a person is asked."""
    why: str


class PreflightScreen(Page):
    """Preflight of a cluster: checks every host, starts nothing."""

    CSS_PATH = "preflight.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "repair", "Repair: the setting, or what is offered", id="check.repair"),
        Binding("l", "launch", "Launch", id="check.launch"),
        Binding("tab", "other_table", "Switch to the other table", id="check.other"),
        Binding("e", "finding(1)", "Next finding", id="check.next"),
        Binding("E", "finding(-1)", "Previous finding", id="check.previous"),
        Binding("ctrl+d", "scroll_findings(1)", "Findings down", id="check.down"),
        Binding("ctrl+u", "scroll_findings(-1)", "Findings up", id="check.up"),
        Binding("x", "end_leftovers", "Kill leftovers of a dead run", id="check.leftovers"),
        Binding("f5", "again", "Check again", id="check.again"),
        Binding("escape", "app.leave", "Back", id="check.back"),
    ]

    def __init__(
        self,
        cluster: ClusterModel,
        file: Path,
        clients: RunClients,
        prompts: PromptDialogs,
        repair: Callable[[Repair], object],
        launch: Callable[[], object],
    ) -> None:
        """`repair` and `launch` do this for the cluster when the screen has gone."""
        super().__init__()
        self._repair, self._launch = repair, launch
        self._cluster = cluster
        self._file = file
        self._clients = clients
        self._prompts = prompts
        tasks = [place.host for job in cluster.jobs.values() for place in job.tasks]
        self._hosts = [cluster.slurm.label] if cluster.slurm else list(dict.fromkeys(tasks))
        self._kinds: Sequence[Check] = CHECKS if cluster.slurm is None else ENGINE_CHECKS
        self._in_rows: Sequence[Check] = self._kinds
        self._checks = Table("checks", "Checks", cells=True)
        self._matrix = Table("matrix", "Connections between hosts", cells=True)
        self._request = VerticalScroll(
            Static(id="script", markup=False), id="request", classes="framed"
        )
        self._found: list[Finding | Reachability] = []
        """Results so far; appended to by the preflight's own thread."""
        self._results = self._report_of(())
        """Report of the results on the screen."""
        self._shown = -1
        """Number of results on the screen."""
        self._report: Report | None = None
        """The whole report, when the preflight is over."""
        self._over = False
        """The whole report has been shown."""
        self._failed = ""
        self._began = 0.0
        self._preflight_task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Report]] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield self._checks
        yield self._other
        with VerticalScroll(id="findings", classes="framed", can_focus=False):
            yield Static(markup=False)
        yield KeyFooter()

    @property
    def _other(self) -> Widget:
        """Below the checks: the connections between hosts, or the nodes and their request."""
        return self._matrix if self._cluster.slurm is None else self._request

    def on_mount(self) -> None:
        if self._cluster.slurm is not None:
            self.add_class("-engine")
            self.query_one("#script", Static).update(nodes_text(self._cluster))
        self._request.border_title = "Nodes"
        self.set_focus(self._checks)
        self.set_interval(FRAME, self._frame)
        self.action_again()

    def on_unmount(self) -> None:
        self._stop()

    # checking

    def action_again(self) -> None:
        self._stop()
        self._found = []
        self._report, self._failed, self._shown, self._over = None, "", -1, False
        self._began = time.monotonic()
        self._check_hosts(self._found)

    @work(thread=True, exclusive=True, group="preflight", exit_on_error=False)
    def _check_hosts(self, found: list[Finding | Reachability]) -> None:
        report, failed = None, ""
        try:  # a loop of its own: many logins at once must not slow the keys
            report = asyncio.run(self._main(found))
        except asyncio.CancelledError:
            return
        except (TfmuxError, OSError, ExceptionGroup) as error:
            failed = str(error)
        if found is self._found:
            self._report, self._failed = report, failed

    async def _main(self, found: list[Finding | Reachability]) -> Report:
        task = asyncio.create_task(preflight(self._cluster, self._prompts, found.append))
        self._preflight_task = (asyncio.get_running_loop(), task)
        return await task

    def _stop(self) -> None:
        """Cancels a running preflight, which ends its agents."""
        if self._preflight_task is not None:
            loop, task = self._preflight_task
            self._preflight_task = None
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    # showing

    def _frame(self) -> None:
        self._show_title()
        count = len(self._found)
        if count != self._shown:
            self._shown = count
            self._apply_found()
            self._show_findings()
        if self._report is not None and not self._over:
            self._over = True
            if self._report.request is not None:
                script = request_text(self._report.request)
                text = Text(f"{nodes_text(self._cluster)}\n{script}", no_wrap=True)
                self.query_one("#script", Static).update(text)
            self._apply_found()
            at_rest = self._checks.has_focus and self._checks.cursor_coordinate in ((0, 0), (0, 1))
            if at_rest and (bad := self._bad()):
                self._go_to(*bad[0])  # what to do about it is read at once
            self._show_findings()  # with the keys that the whole report has brought

    def _show_title(self) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"preflight of {self._cluster.name}   ", "bold")
        colours = status_colours(self.app)
        if self._failed:
            text.append(f"✗ {self._failed}", colours[StatusColor.BAD])
        elif self._report is None:
            seconds = time.monotonic() - self._began
            text.append(f"checking, {seconds:.0f} s", colours[StatusColor.BUSY])
            if errors := count(self._results, Severity.ERROR):
                text.append(f"   {counted(errors, 'error')}", colours[StatusColor.BAD])
        else:
            text.append_text(verdict(self._results, colours))
            text.append(f"   {self._report.seconds:.1f} s", "dim")
        self.query_one("#title", Static).update(text)

    def _report_of(self, found: Sequence[Finding | Reachability]) -> Report:
        pairs = {(p.source, p.task): p for p in found if isinstance(p, Reachability)}
        order = {host: number for number, host in enumerate(self._hosts)}
        findings = [each for each in found if isinstance(each, Finding)]
        findings.sort(key=lambda each: order.get(each.host, 0))  # hosts answer in any order
        return Report(
            name=self._cluster.name,
            hosts=tuple(self._hosts),
            findings=tuple(findings),
            reachability=tuple(pairs.values()),
            accepted=(),
            seconds=0.0,
            checks=tuple(self._kinds),
        )

    def _apply_found(self) -> None:
        self._results = self._report_of(list(self._found))
        colours = status_colours(self.app)
        self._show_checks()
        if self._cluster.slurm is None:
            titles, rows = reach_table(self._results, colours)
            then = "no connection was tried" if self._report else "after the logins"
            self._matrix.border_subtitle = "" if rows else then
            self._matrix.show(titles, rows)

    def _show_checks(self) -> None:
        """Shows the table of checks, in columns that are narrow enough for all hosts where that is
        possible; else it says how many there are. At the end without checks that no host made."""
        count = len(self._hosts)
        room = self._checks.scrollable_content_region.width or self.size.width
        gaps = 2 * self._checks.cell_padding * (count + 1)
        widest = (room - max(map(len, self._kinds)) - gaps) // max(1, count)
        titles, rows = checks_table(
            self._results, status_colours(self.app), max(_NARROWEST, widest)
        )
        if self._report is not None and self._cluster.slurm is None:
            rows = [row for row in rows if any(cell.plain != NOTHING for cell in row.make()[1:])]
        self._in_rows = [Check(row.key) for row in rows]
        self._checks.show(titles, rows)
        used = sum(each.get_render_width(self._checks) for each in self._checks.ordered_columns)
        others = f": {count} hosts, ← → shows the others" if used > room else ""
        self._checks.border_title = Content(f"Checks{others}")

    def on_resize(self) -> None:
        if self._shown >= 0:
            self.call_after_refresh(self._show_checks)

    def _place(self) -> tuple[str, str]:
        """Host and task of the matrix's cell under the cursor, or host and check."""
        table = self._matrix if self._matrix.has_focus and self._matrix.key else self._checks
        hosts = self._hosts if table is self._checks else sources(self._results)
        host = hosts[min(max(1, table.cursor_column), len(hosts)) - 1]
        return host, table.key or self._kinds[0]

    def _groups_here(self) -> list[FindingGroup]:
        """Findings about the cell under the cursor, the worst first, each with equal ones of other
        hosts."""
        here = self._here()
        groups = grouped(self._results.findings)
        return [group for each in here for group in groups if each in group.findings]

    def _here(self) -> list[Finding]:
        """Findings about the cell under the cursor, the worst first."""
        host, what = self._place()
        if what in self._kinds:
            return about(self._results, host, Check(what))
        pair = self._pair(host, what)
        return about_pair(self._results, pair) if pair is not None else []

    def _pair(self, source: str, task: str) -> Reachability | None:
        """The connection from a host to a task, if the cluster needs it and it was tried."""
        pairs = self._results.reachability
        return next((p for p in pairs if p.source == source and str(p.task) == task), None)

    def _nothing_here(self) -> str:
        """Reason for which the cell under the cursor has no finding."""
        host, what = self._place()
        if what in self._kinds:
            if what in LOGIN_CHECKS and self._cluster.is_local(host):
                return f"{host} is this machine: no login needed"
            entry = self._cluster.hosts.get(host)
            if what in LOGIN_CHECKS[:-1] and entry is not None and entry.via is not None:
                return f"{host} is reached by via: no SSH needed"
            if self._report is not None and self._cluster.slurm is not None:
                return "not checked: it takes a node"
            return "not checked" if self._report else "not checked yet"
        pair = self._pair(host, what)
        if pair is None:
            return f"{host} needs no connection to {what}"
        if pair.reach is Reach.UNKNOWN:
            return f"not tried: {host} or {pair.target} could not be asked"
        resolved = f" ({pair.resolved})" if pair.resolved else ""
        if pair.reach is Reach.OK:
            return f"{host} reaches {what} at {pair.address}{resolved}"
        return f"{host} to {what} at {pair.address}{resolved}: {pair.reach}"

    @on(DataTable.CellHighlighted)
    def _show_findings(self) -> None:
        text = Text()
        colours = status_colours(self.app)
        groups = self._groups_here()
        for group in groups:
            text.append_text(group_text(group, colours))
        text.rstrip()
        shown = text or Text(self._nothing_here(), "dim")
        findings = self.query_one("#findings", VerticalScroll)
        findings.query_one(Static).update(shown)
        findings.scroll_home(animate=False)
        other = "other table" if self._cluster.slurm is None else "nodes"
        hints = [("check.next", "next finding"), ("check.other", other)]
        if self._report is not None and self._report.ok:
            hints.insert(0, ("check.launch", "launch"))
        if does := next((does for group in groups if (does := self._repair_text(group))), ""):
            hints.insert(0, ("check.repair", does))
        if any(each.run for each in self._here()):
            hints.insert(0, ("check.leftovers", "kill leftovers"))
        if self.query_one("#findings").max_scroll_y:
            hints.append(("check.up check.down", "scroll"))
        again = ("check.again", "check again")
        bad = any(each.severity is not Severity.OK for each in self._here())
        # What no setting repairs is repaired elsewhere, and then checked again.
        hints.insert(0 if bad and not does else len(hints), again)
        hints += [("check.back", "back"), *self.kill_hints]
        self.query_one(KeyFooter).show([*hints, ("help", "help")])

    def show_hints(self) -> None:
        if self._shown >= 0:
            self._show_findings()

    def _repair_text(self, group: FindingGroup) -> str:
        """What Enter does about findings, in two or three words; empty where it can do nothing."""
        settings = group.settings(self._cluster)
        if not settings:
            return ""
        hosts = shown_names(group.hosts, LOCALHOST)
        if group.offers:
            return f"take that python on {hosts}"
        *_, key = settings[0]
        return f"edit {key}" + (f" of {hosts}" if settings[0][0] == "hosts" else "")

    def on_descendant_focus(self) -> None:
        """Shows the findings of the other table's cell."""
        if self._shown >= 0:
            self._show_findings()

    # actions

    def action_other_table(self) -> None:
        """Switches between the checks and what is below them."""
        self.set_focus(self._other if self._checks.has_focus else self._checks)

    def _bad(self) -> list[tuple[int, int]]:
        """Row and column of the cells with a warning or error, host after host; of equal ones on
        several hosts the first."""
        bad = {
            (self._in_rows.index(finding.check), self._hosts.index(finding.host) + 1)
            for finding in (group.first for group in grouped(self._results.findings))
            if finding.severity is not Severity.OK
            and finding.host in self._hosts
            and finding.check in self._in_rows
        }
        return sorted(bad, key=lambda place: (place[1], place[0]))

    def action_finding(self, by: int) -> None:
        """Goes to the next or previous cell with a warning or error."""
        bad = self._bad()
        if not bad:
            self.notify("no findings" if self._report else "no findings so far")
            return
        here = (self._checks.cursor_column, self._checks.cursor_row)
        after = [place for place in bad if (place[1], place[0]) > here]
        before = [place for place in bad if (place[1], place[0]) < here]
        place = (after or bad)[0] if by > 0 else (before or bad)[-1]
        self._go_to(*place)

    def _go_to(self, row: int, column: int) -> None:
        self.set_focus(self._checks)
        self._checks.move_cursor(row=row, column=column)

    @on(DataTable.CellSelected)
    def action_repair(self) -> None:
        """Takes what is offered for the findings under the cursor, or opens the setting that
        repairs them."""
        for group in self._groups_here():
            if settings := group.settings(self._cluster):
                self.app.pop_screen()
                offers = [group.offers.get(host, "") for host in group.hosts]
                values = offers if any(offers) and len(offers) == len(settings) else ()
                self._repair(Repair(settings, values, group.first.sentence))
                return
        if any(each.severity is not Severity.OK for each in self._here()):
            self.notify("no setting of the file repairs this: see the advice below")

    def action_launch(self) -> None:
        """Launches the cluster, unless that would fail."""
        if self._report is None:
            self.notify("the hosts are still being checked")
        elif not self._report.ok:
            errors = [one for one in self._results.findings if one.severity is Severity.ERROR]
            if any(group.settings(self._cluster) for group in grouped(errors)):
                then = f"{key_of(self, 'check.repair')} leads to the repair"
            else:
                then = f"{key_of(self, 'check.again')} checks again after the repair"
            self.notify(f"a launch would fail: {then}", severity="warning")
        else:
            self.app.pop_screen()
            self._launch()

    def action_scroll_findings(self, by: int) -> None:
        """Scrolls the findings of the cell under the cursor, which a low screen cannot hold."""
        findings = self.query_one("#findings", VerticalScroll)
        findings.scroll_relative(y=by * max(1, findings.size.height - 1), animate=False)

    def action_end_leftovers(self) -> None:
        """Kills what a dead run has left, after one question."""
        entries = []
        for run in sorted({each.run for each in self._here() if each.run}):
            try:  # another machine may have launched it from this very file
                entries.append(read_run(stored_folder(run, self._file)))
            except TfmuxError as error:
                self.notify(str(error), severity="error")
        if entries:
            dialog = KillRunsDialog(entries, self._clients, self._prompts)
            self.app.push_screen(dialog, lambda _: self.action_again())
