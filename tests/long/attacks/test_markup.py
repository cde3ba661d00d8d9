"""Text from elsewhere on the screen: no markup, no link, nothing that a terminal acts on."""

from __future__ import annotations

import ast
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.screen import Screen

from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from launcher.ids import TaskId
from launcher.run.snapshot import Failure, HostReceipt, HostView, Receipt, Survivor
from launcher.run.states import HostState, Outcome, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.paths import REPOSITORY
from tests.support.screens import until
from tui.app import TfmuxApp
from tui.screens.dialogs import AskText, Confirm
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.prompt_dialogs import PromptDialog

EVIL = "\x1b[31m\x9b5m\x1b]0;t\x07\u202e\u200b[bold]e[/] [@click=app.quit]v[/] [link=x]i[/oops] l"
EVIL_KEY = OfferedKey(EVIL, EVIL, EVIL, EVIL)
MARKUP = "[@click=app.quit]v[/]"


def drawn(app: App[int]) -> str:
    """Everything that stands on the screen; fails when a terminal would act on any of it."""
    strips = app.screen._compositor.render_strips()
    for strip in strips:
        for segment in strip:
            odd = [c for c in segment.text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
            assert not odd, (odd, segment.text)
            style = segment.style
            assert style is None or (not style.link and "@click" not in style.meta), segment
    return "\n".join(strip.text for strip in strips)


def evil_run(folder: Path) -> ScriptedRun:
    """A run in which whatever comes from elsewhere is evil."""
    run = ScriptedRun(folder, workers=2, hosts=2)
    run.all_tasks(state=TaskState.RUNNING, started=time.time(), reason=EVIL, host=EVIL)
    host = HostView(EVIL, EVIL, HostState.LOST, reason=EVIL)
    run.change(name=EVIL, waiting=EVIL, waiting_since=time.time(), hosts=(host,))
    for task in ("ps:0", "worker:0", "worker:1"):
        run.write(task, EVIL.encode() + b"\nERROR " + EVIL.encode() + b"\n")
    return run


def end(run: ScriptedRun) -> None:
    """The run ends as badly as it can."""
    survivor = Survivor(1, EVIL, EVIL)
    receipt = Receipt((HostReceipt(EVIL, 3, (survivor,)),))
    tail = (EVIL, "MemoryError " + EVIL)
    failure = Failure(TaskId("worker", 0), EVIL, EVIL, time.time(), (), tail)
    run.end(Outcome.FAILED, 1, failure, receipt)


async def test_no_screen_of_a_run_obeys_foreign_text(tmp_path: Path) -> None:
    """Given a run with markup and escapes in all that comes from elsewhere, when panes, metrics,
    hosts, summary and receipt are drawn, then these are text, without a link or an action."""
    run = evil_run(tmp_path)
    app = TfmuxApp(run)
    try:
        async with app.run_test(size=(160, 50), notifications=True) as pilot:
            run.change(notes=(EVIL,))
            await until(pilot, lambda: "e[/] [@click" in drawn(app))
            for keys in (("m",), ("M",), ("escape", "H"), ("escape", "question_mark"), ("escape",)):
                await pilot.press(*keys)
                drawn(app)
            await pilot.press("ampersand", *"[b]", "enter")
            await pilot.press("slash", *"[@click", "enter")
            await until(pilot, lambda: "/[@click" in drawn(app))
            end(run)
            await until(pilot, lambda: "oops] l" in drawn(app))
            await pilot.press("f9")
            await until(pilot, lambda: "Receipt" in drawn(app))
            assert MARKUP in drawn(app)
            assert app.is_running
    finally:
        run.logs.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Confirm(EVIL, EVIL),
        lambda: AskText(EVIL, EVIL, lambda _: EVIL, EVIL),
        lambda: PromptDialog(AuthPrompt(EVIL, EVIL)),
        lambda: HostKeyDialog([OpenPrompt(AuthPrompt(EVIL, EVIL, kind=PromptKind.HOST_KEY))]),
        lambda: HostKeyDialog([OpenPrompt(AuthPrompt("tf1", "", key=EVIL_KEY))]),
    ],
)
async def test_no_dialog_obeys_foreign_text(
    tmp_path: Path, make: Callable[[], Screen[Any]]
) -> None:
    """Given a dialog whose titles, reasons and problems hold markup and escapes, when it is opened,
    then they are shown as text, without a link or an action."""
    run = ScriptedRun(tmp_path)
    app = TfmuxApp(run)
    try:
        async with app.run_test(size=(160, 50)) as pilot:
            app.push_screen(make())
            await until(pilot, lambda: MARKUP in drawn(app))
    finally:
        run.logs.close()


def test_no_widget_reads_markup() -> None:
    """Given the source of the screens, then each widget that could take its text for markup is made
    with `markup=False`, and no text is made from markup."""
    for path in sorted((REPOSITORY / "tui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            assert name not in ("from_markup", "render_markup"), f"{path}:{node.lineno}"
            if name in ("Static", "Label", "OptionList", "Button"):
                told = [ast.unparse(k.value) for k in node.keywords if k.arg == "markup"]
                assert told == ["False"], f"{path}:{node.lineno}: {name} without markup=False"
