"""Layouts, words and cells: what fits where, and how values are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher import quantities
from launcher.errors import TfmuxError
from launcher.ids import TaskId
from launcher.run.snapshot import TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.paths import REPOSITORY
from tui import demos, pane_layout
from tui.exits import Exit
from tui.format import bar
from tui.main import main, parse
from tui.outcome import TERMINAL
from tui.widgets.fit import Importance, Part, fit
from tui.widgets.header import header_parts
from tui.widgets.titles import empty_text

# Positions of panes at the sizes that the design names.


@pytest.mark.parametrize(
    ("tasks", "size", "page", "columns"),
    [
        (2, (200, 47), 2, 2),
        (2, (80, 21), 2, 1),
        (3, (80, 21), 3, 1),
        (4, (200, 47), 4, 2),
        (4, (80, 21), 4, 2),
        (9, (200, 47), 9, 3),
        (9, (80, 21), 6, 2),
        (16, (200, 47), 16, 4),
        (16, (80, 21), 6, 2),
        (64, (200, 47), 16, 4),
        (256, (400, 117), 16, 4),
    ],
)
def test_pages_and_columns(tasks: int, size: tuple[int, int], page: int, columns: int) -> None:
    """The table of the design."""
    assert pane_layout.per_page(tasks, *size) == page
    assert pane_layout.columns(page, size[0]) == columns


def test_each_row_of_panes_fills_the_width() -> None:
    """At every size from 80×24 to 400×120 the spans of any row add up to the columns of the grid,
    and no pane is smaller than 40×6."""
    for width in range(80, 401, 23):
        for height in range(20, 118, 13):
            for count in (1, 2, 3, 5, 9, 16, 40):
                page = min(count, pane_layout.per_page(count, width, height))
                rows = pane_layout.even_rows(page, width)
                check_widths(rows, page)
                assert width // max(rows.counts) >= 40 and height // len(rows.counts) >= 6


def check_widths(rows: pane_layout.PageRows, panes: int) -> None:
    """The panes of each row fill the columns of the grid."""
    spans = list(rows.spans)
    assert len(spans) == sum(rows.counts) == panes
    for count in rows.counts:
        assert sum(spans[:count]) == rows.columns
        del spans[:count]


@pytest.mark.parametrize(
    ("quiet", "others", "size", "counts", "heights"),
    [
        (1, 2, (80, 22), (1, 1, 1), (5, 0, 0)),
        (1, 3, (80, 22), (1, 2, 1), (5, 0, 0)),
        (2, 2, (80, 22), (2, 1, 1), (5, 0, 0)),
        (3, 2, (80, 22), (2, 1, 1, 1), (5, 5, 0, 0)),
        (1, 2, (200, 48), (1, 2), (12, 0)),
        (2, 6, (200, 48), (2, 3, 3), (12, 0, 0)),
        (7, 3, (200, 48), (4, 3, 2, 1), (6, 6, 0, 0)),
        (1, 8, (80, 22), None, None),
        (5, 1, (80, 22), None, None),
    ],
)
def test_quiet_tasks_share_short_rows(
    quiet: int,
    others: int,
    size: tuple[int, int],
    counts: tuple[int, ...] | None,
    heights: tuple[int, ...] | None,
) -> None:
    """Given ps and helpers beside tasks that train, then they share a quarter of the height above
    them, with four lines each at least; where the others have no room then, there are no such
    rows."""
    rows = pane_layout.role_rows(quiet, others, *size)
    assert (rows and rows.counts, rows and rows.heights) == (counts, heights)


def test_rows_by_role_keep_their_sizes_at_every_size() -> None:
    """Given any size from 80×24 to 400×120, then short rows have four lines, the others six rows
    with their title, and together they take no more than there is."""
    for width in range(80, 401, 37):
        for height in range(21, 118, 7):
            for quiet in range(1, 9):
                for others in range(1, 9):
                    rows = pane_layout.role_rows(quiet, others, width, height)
                    if rows is None:
                        continue
                    check_widths(rows, quiet + others)
                    short = sum(rows.heights)
                    edges = 2 if rows.framed(width, height) else 1
                    assert all(not high or high - edges >= 4 for high in rows.heights)
                    assert short <= height // 2
                    assert (height - short) // rows.heights.count(0) >= 6


def test_rows_by_role_stay_when_the_room_shrinks_for_a_while() -> None:
    """Given rows by role that fit, when a summary takes a third of the height, then they stay, only
    lower; a run that opens in that room has the even grid."""
    tasks = tuple(
        TaskView(TaskId.parse(name), "tf1", "tf1:1", TaskState.RUNNING, in_cluster=name != "tb:0")
        for name in ("ps:0", "worker:0", "worker:1", "worker:2", "tb:0")
    )
    by_role, grid = pane_layout.Arrangement.ROLES, pane_layout.Arrangement.GRID

    def opened(height: int) -> pane_layout.PaneLayout:
        layout = pane_layout.PaneLayout(tasks=tasks)
        layout.resize(80, height)
        return layout

    layout = opened(22)
    rows = layout.rows_by_role
    assert layout.effective == by_role and rows is not None
    assert [str(task) for task in layout.in_sight()] == [
        *("ps:0", "tb:0", "worker:0", "worker:1", "worker:2")
    ]
    for height in (18, 14, 16, 22):
        layout.resize(80, height)
        shown = layout.rows_by_role
        assert layout.effective == by_role and shown is not None and shown.counts == rows.counts
    assert opened(14).effective == grid
    layout.arrangement = grid
    layout.resize(80, 22)
    assert layout.effective == grid


def test_small_pages_have_no_borders_at_the_sides() -> None:
    """They would cost lines that matter; the title alone stands for them."""
    for size, count, framed in [((80, 21), 2, False), ((120, 37), 4, True), ((200, 47), 16, True)]:
        assert pane_layout.even_rows(count, size[0]).framed(*size) is framed
    assert not pane_layout.even_rows(1, 80).framed(80, 21)


# Rows of ranked parts: what a narrow row leaves out.

NAMED = [
    Part(Importance.NAME, "mnist-between-graph", shortens=True),
    Part(Importance.STATE, "ps ✓"),
    Part(Importance.STATE, " ▸ workers 3/3", joins=True),
    Part(Importance.STATE, "step 12/90"),
    Part(Importance.BAR, "━━━━━╌╌╌╌╌"),
    Part(Importance.LOSS, "loss 0.21"),
]
FAILED = [
    Part(Importance.NAME, "mnist"),
    Part(Importance.NEWS, "first: worker:1 exit 1"),
    Part(Importance.RATE, "331 steps/s"),
    Part(Importance.LOSS, "loss 3"),
]
HOST = [Part(0, "ps:0"), Part(4, " @tf1", joins=True), Part(1, "ready")]


@pytest.mark.parametrize(
    ("parts", "width", "row"),
    [
        (NAMED, 99, "mnist-between-graph  ps ✓ ▸ workers 3/3  step 12/90  ━━━━━╌╌╌╌╌  loss 0.21"),
        (NAMED, 62, "mnist-between-graph  ps ✓ ▸ workers 3/3  step 12/90  loss 0.21"),
        (NAMED, 61, "mnist-between-graph  ps ✓ ▸ workers 3/3  step 12/90"),
        (NAMED, 42, "mnist-bet…  ps ✓ ▸ workers 3/3  step 12/90"),
        (NAMED, 37, "ps ✓ ▸ workers 3/3  step 12/90"),
        (NAMED, 17, "ps ✓  step 12/90"),
        (FAILED, 40, "mnist  first: worker:1 exit 1  loss 3"),
        (FAILED, 20, "first: worker:1 exi…"),
        (HOST, 16, "ps:0 @tf1  ready"),
        (HOST, 12, "ps:0  ready"),
        (HOST, 9, "ps:0 @tf1"),
    ],
)
def test_what_counts_less_goes_first_and_what_still_fits_stays(
    parts: list[Part], width: int, row: str
) -> None:
    """A part that joins goes with the one before it; a name is cut before it goes."""
    assert fit(parts, width).plain == row


# A word that is no command: the command that the words of other programs mean.


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("launch", "up"),
        ("start", "up"),
        ("stop", "kill"),
        ("list", "ps"),
        ("status", "ps"),
        ("lgos", "logs"),
    ],
)
def test_the_command_that_is_meant_is_named(
    word: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stop` is near to `open` in letters alone."""
    with pytest.raises(SystemExit) as end:
        main([word])
    assert end.value.code == Exit.USAGE
    assert f"did you mean '{command}'?" in capsys.readouterr().err


def test_a_word_that_is_near_to_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The help lists all commands."""
    with pytest.raises(SystemExit):
        main(["quit"])
    assert "see tfmux --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "command"),
    [(["--headless"], "up"), (["--json"], "up"), ([], "open")],
    ids=["headless", "json", "screen"],
)
def test_a_file_without_a_screen_is_launched(
    tmp_path: Path, words: list[str], command: str
) -> None:
    """Given a cluster file as the first word, when an option says that there is to be no screen,
    then the file is launched; without one it is opened."""
    file = tmp_path / "c.toml"
    file.write_text("name = 'c'\n")
    arguments = parse([str(file), *words])
    assert arguments.command == command


# Figures and times as people read them.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (9.9, "9 s"), (13, "10 s"), (99, "95 s"), (101, "1 min"), (5999, "99 min"),
     (6000, "1 h"), (47.9 * 3600, "47 h"), (48 * 3600, "2 d"), (86400 * 30, "30 d")],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    """Calm for seconds, whole units for the rest."""
    assert quantities.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (62, "1:02"), (3723, "1:02:03"), (-5, "0:00")]
)
def test_clocks(seconds: float, text: str) -> None:
    """Hours only where there are any."""
    assert quantities.clock(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (812, "812 B"), (1500, "1.5 KB"), (64e3, "64 KB"), (1.2e9, "1.2 GB")],
)
def test_sizes(count: float, text: str) -> None:
    """Two figures are enough."""
    assert quantities.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 hosts"), (1, "1 host"), (12_000, "12,000 hosts")]
)
def test_counts(count: int, text: str) -> None:
    assert quantities.counted(count, "host") == text


# What screens say of tasks whose logs are empty, of those that are gone, and of progress.


@pytest.fixture
def starting(tmp_path: Path) -> ScriptedRun:
    """A run of a ps, a chief and two workers that start one stage after the other."""
    return ScriptedRun(tmp_path, ps=2, workers=3, hosts=5)


def said(run: ScriptedRun, name: str) -> str:
    snapshot = run.snapshot()
    task = next(task for task in snapshot.tasks if str(task.id) == name)
    return empty_text(task, snapshot, 106.0)


def test_an_empty_pane_says_what_is_waited_for(starting: ScriptedRun) -> None:
    """Given tasks of later stages, then each names the tasks before it that are not ready; one
    whose turn has come says that, and one whose host is not connected to names the host."""
    assert said(starting, "ps:0") == "starts next"
    assert said(starting, "worker:0") == "starts when ps:0–1 are ready"
    assert said(starting, "worker:1") == "starts when worker:0 is ready"
    starting.task("ps:1", state=TaskState.READY, attempt=1)
    assert said(starting, "worker:0") == "starts when ps:0 is ready"
    starting.task("ps:0", state=TaskState.READY, attempt=1)
    assert said(starting, "worker:0") == "starts next"
    hosts = starting.snapshot().hosts
    starting.change(hosts=(replace(hosts[0], state=HostState.CONNECTING), *hosts[1:]))
    starting.task("ps:0", state=TaskState.PENDING)
    assert said(starting, "ps:0") == "waits for the connection to tf1"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TaskState.WARMING, "imports its modules, 6 s; starts when ps:0–1 are ready"),
        (TaskState.STARTING, "starting, 6 s: no output yet"),
        (TaskState.RUNNING, "running, 6 s: no output yet"),
        (TaskState.BACKOFF, "waits before its next attempt"),
        (TaskState.LOST, "its host is lost: no answer for 14 s"),
        (TaskState.FAILED, "exit 3: no output"),
    ],
)
def test_an_empty_pane_says_what_its_task_does(
    starting: ScriptedRun, state: TaskState, words: str
) -> None:
    """Given a task that has printed nothing, then its state is a sentence, with its time."""
    code, reason = (3, "") if state is TaskState.FAILED else (None, "no answer for 14 s")
    starting.task("worker:0", state=state, started=100.0, exit_code=code, reason=reason)
    assert said(starting, "worker:0") == words


def test_files_on_their_way_are_counted(starting: ScriptedRun) -> None:
    """Given a host that gets files, then the pane says how much of them is there."""
    hosts = starting.snapshot().hosts
    staged = replace(hosts[0], staged_bytes=12_000_000, staged_total=40_000_000)
    starting.change(hosts=(staged, *hosts[1:]))
    starting.task("ps:0", state=TaskState.STAGING)
    assert said(starting, "ps:0") == "gets its files, 12 MB of 40 MB; starts next"


def test_the_header_counts_the_tasks_that_are_alive(starting: ScriptedRun) -> None:
    """Given a run that goes on with failures kept, then the header says how many tasks are alive;
    while all are, it does not."""
    starting.all_tasks(state=TaskState.RUNNING, attempt=1)
    starting.change(state=RunPhase.RUNNING)

    def row() -> list[str]:
        parts = header_parts(starting.snapshot(), 106.0, dict(TERMINAL), lambda name: name)
        return [part.text for part in parts]

    assert not any("alive" in text for text in row())
    starting.task("worker:1", state=TaskState.FAILED, exit_code=1, ended=1.0)
    starting.task("worker:2", state=TaskState.EXITED, exit_code=0, ended=1.0)
    assert "3/5 tasks alive" in row()


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        (0.0, "░░░░░░░░░░"),
        (0.001, "▋░░░░░░░░░"),
        (0.01, "▋░░░░░░░░░"),
        (0.1, "█░░░░░░░░░"),
        (0.96, "█████████▋"),
        (0.999, "█████████▋"),
        (1.0, "██████████"),
        (1.7, "██████████"),
    ],
)
def test_a_bar_has_begun_and_has_not_ended(share: float, drawn: str) -> None:
    """Given a share of 1 %, then the bar is not empty; full it is at the end alone."""
    assert bar(share, 10) == drawn


@pytest.mark.parametrize("words", [["--help"], ["tutorial"], ["tutorials"]])
def test_the_word_tutorial_leads_to_its_page(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is in the repository, and begins with the demo that is named."""
    with pytest.raises(SystemExit):
        main(words)
    out, err = capsys.readouterr()
    assert "tutorial" in (out or err) and "docs/tutorials.md" in out + err
    assert "`tfmux demo classic`" in out + err
    assert (REPOSITORY / "docs" / "tutorials.md").is_file() and "classic" in demos.names()


def test_a_demo_for_the_tutorials_is_named() -> None:
    with pytest.raises(TfmuxError, match="did you mean classic"):
        demos.find("tutorials")
