"""The preflight screen: fills as it goes, and ends what it began when it is left."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Static

from launcher.cluster import library
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads
from launcher.cluster.templates import ONE_MACHINE, SLURM, render
from launcher.hosts import dial
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import TaskPlan
from launcher.preflight import (
    ENGINE_CHECKS,
    Check,
    Finding,
    Reachability,
    Report,
    Severity,
    reachability,
)
from launcher.preflight.findings import Result, passed
from launcher.preflight.probes import ConnectAnswer
from launcher.slurm.script import request_of
from tests.support.cluster_texts import cluster_text
from tests.support.homes import home
from tests.support.patience import PATIENCE
from tests.support.screens import screen_text, shows, until
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tui.app import TfmuxApp
from tui.screens.home import HomeScreen
from tui.screens.preflight_screen import PreflightScreen
from tui.widgets.table import Table

REMOTE = """
[hosts.far]
ssh = "{destination}"
address = "far.invalid"
[jobs.worker]
tasks = ["far:2222"]
command = ["train"]
[run]
workdir = ""
"""


async def test_a_stranger_is_asked_about_and_a_refusal_is_a_finding(ssh_server: SshServer) -> None:
    """The host's key is shown in the dialog; n refuses it, and the finding says what to do."""
    destination = f"{ssh_server.user}@127.0.0.1:{ssh_server.port}"
    library.create("far", REMOTE.format(destination=destination))
    async with home() as pilot:
        await pilot.press("T")
        await shows(pilot, "First contact with far")
        await pilot.press("n")
        await shows(pilot, "✗ a launch would fail")
        await pilot.press("e")
        await shows(pilot, "--accept-new")


async def test_hosts_that_cannot_be_reached_are_told_apart_at_80_by_24(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A closed port, a name that nobody knows, a server that says nothing: each its own word in
    the table, and a sentence with what to do. The cursor goes to the first by itself, e to the
    next; what was not tried says so."""
    monkeypatch.setattr(dial, "BANNER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = closed.getsockname()[1], silent.getsockname()[1]
        text = (
            f'[hosts.h1]\nssh = "127.0.0.1:{ports[0]}"\naddress = "h1.invalid"\n'
            '[hosts.h2]\nssh = "nowhere.invalid"\naddress = "h2.invalid"\n'
            f'[hosts.h3]\nssh = "127.0.0.1:{ports[1]}"\naddress = "h3.invalid"\n'
            '[jobs.worker]\ntasks = ["h1:2222", "h2:2222", "h3:2222"]\n'
            'command = ["train"]\n[run]\nworkdir = ""\n'
        )
        library.create("bad", text)
        async with home(size=(80, 24)) as pilot:
            await pilot.press("T")
            await shows(pilot, "✗ a launch would fail   3 errors")
            await shows(pilot, "✗ refused")
            await shows(pilot, "✗ unresolved")
            await shows(pilot, "✗ silent")
            await shows(pilot, f"✗ h1: connection refused by 127.0.0.1:{ports[0]}")
            await shows(pilot, "→ start sshd there")
            await pilot.press("e")
            await shows(pilot, "✗ h2: the name 'nowhere.invalid' does not resolve here")
            await pilot.press("e")
            await shows(pilot, "accepts connections but sent no SSH banner")
            await pilot.press("tab", "down")
            await shows(pilot, "not tried: h1 or h2 could not be asked")


ELEVEN = cluster_text(
    {
        "ps": "a:2222",
        "worker": {
            "tasks": "b:2222 b:2223 b:3 b:4 b:5 b:6 b:7 b:8 b:9 b:10 c:2222",
            "command": ["train"],
        },
    },
    hosts={"a": {"ssh": "a.invalid"}, "b": {"ssh": "b.invalid"}, "c": {"ssh": "c.invalid"}},
    command=["train"],
    workdir="",
)


def reached(outcome: str, address: str) -> ConnectAnswer:
    """A host's answer of how a connection went."""
    said = {"outcome": outcome, "address": address, "resolved": 0.1, "connected": 0.1}
    return ConnectAnswer.model_validate(said)


async def test_a_cell_is_told_by_its_own_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is one finding for all tasks of that host, and is told in each
    of their cells; what is wrong with worker:10 says nothing of worker:1."""
    plan = make_plan(loads(ELEVEN, "many.toml", Path("/")), "check")
    found: list[Result] = []

    def add(task: TaskPlan, answer: ConnectAnswer, *, told: bool) -> None:
        pair = reachability.outcome("a", task, task.address, answer)
        found.append(pair)
        finding = reachability.finding(pair, answer)
        if told and finding is not None:
            found.append(finding)

    add(plan.task(TaskId("worker", 0)), reached("unresolved", ""), told=True)
    add(plan.task(TaskId("worker", 3)), reached("unresolved", ""), told=False)
    add(plan.task(TaskId("worker", 1)), reached("ok", "10.0.0.2"), told=True)
    add(plan.task(TaskId("worker", 10)), reached("refused", "10.0.0.3"), told=True)

    async def fake(_: object, ask: object, tell: Callable[[Result], None]) -> Report:
        for each in found:
            tell(each)
        pairs = tuple(each for each in found if isinstance(each, Reachability))
        findings = tuple(each for each in found if isinstance(each, Finding))
        return Report("many", ("a", "b", "c"), findings, pairs, (), 0.1)

    monkeypatch.setattr("tui.screens.preflight_screen.preflight", fake)
    library.create("many", ELEVEN)
    async with home() as pilot:
        await pilot.press("T")
        await shows(pilot, "✗ a launch would fail")
        await pilot.press("tab")
        matrix_table = pilot.app.screen.query_one("#matrix", Table)
        tasks = ["worker:0", "worker:1", "worker:3", "worker:10"]
        assert [key.value for key in matrix_table.rows] == tasks
        for task, words in (
            ("worker:0", "a cannot resolve b.invalid, the address of b"),
            ("worker:3", "a cannot resolve b.invalid, the address of b"),
            ("worker:1", "a reaches worker:1 at b.invalid:2223"),
            ("worker:10", "a is refused by c.invalid:2222"),
        ):
            matrix_table.go_to(task, 1)
            await shows(pilot, words)
            other = "refused" if task == "worker:1" else f"reaches {task} "
            told = str(pilot.app.screen.query_one("#findings > Static", Static).render())
            assert other not in told, told


async def test_all_findings_of_a_cell_are_read_at_80_by_24(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the check the cursor stands on the bad cell, in sight, and the remedy of its last
    finding can be scrolled to."""
    why = "and this is told at such length that it takes more than one row of a low screen"
    findings = tuple(
        Finding(
            Severity.ERROR,
            Check.LEFTOVERS,
            "kind",
            "a",
            f"number {n}",
            f"problem {n} {why}",
            f"remedy {n}",
        )
        for n in range(6)
    )

    async def fake(_: object, ask: object, tell: Callable[[Result], None]) -> Report:
        for each in findings:
            tell(each)
        return Report("many", ("a", "b", "c"), findings, (), (), 0.1)

    monkeypatch.setattr("tui.screens.preflight_screen.preflight", fake)
    library.create("many", ELEVEN)
    async with home(size=(80, 24)) as pilot:
        await pilot.press("T")
        await shows(pilot, "✗ a launch would fail")
        await shows(pilot, "problem 0")
        await shows(pilot, "leftovers")
        for _ in range(4):
            await pilot.press("ctrl+d")
        await shows(pilot, "remedy 5")


async def test_leaving_early_ends_the_look(tmp_path: Path) -> None:
    """Escape while it goes on: home again at once, and neither an agent nor what it asks stays."""
    asked = tmp_path / "asked"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ >> {asked}\nexec sleep 1000\n")
    python.chmod(0o755)
    text = render(ONE_MACHINE, "mine", {}, Path("/srv"))
    library.create("mine", text.replace("{python}", str(python)))
    async with home() as pilot:
        await pilot.press("T")
        await until(pilot, lambda: asked.exists() and asked.read_text().endswith("\n"))
        await shows(pilot, "checking")
        looks = [proc.read(int(pid)) for pid in asked.read_text().split()]
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        assert any(looks)
        for process in filter(None, looks):
            await until(pilot, lambda gone=process: proc.read(gone.pid) != gone)  # type: ignore[misc]


async def test_this_machine_is_looked_at_and_x_ends_what_a_dead_run_has_left_there() -> None:
    """`T` on a cluster: each check gets its cell, the one under the cursor is told in full. A
    process with a run's tag and no agent is found by its tag, and ended with a receipt by the
    cluster's own file, although this machine has no record of the run."""
    library.create("mine", render(ONE_MACHINE, "mine", {}, Path("/srv")))
    run = "mine-20261120-183002-1234"
    environ = {**os.environ, "TFMUX_TASK": f"{run}/worker:0/1;"}
    left = subprocess.Popen(["sleep", "1000"], env=environ, start_new_session=True)
    try:
        async with home() as pilot:
            await pilot.press("T")
            await until(pilot, lambda: isinstance(pilot.app.screen, PreflightScreen))
            await shows(pilot, "preflight of mine")
            await shows(pilot, "tensorflow")
            await shows(pilot, "✓ ready to launch")
            # The cursor is on the first finding.
            await pilot.press(*["up"] * 20)
            # This machine needs no login: its checks have no rows.
            names = [row.strip("│ ").partition(" ")[0] for row in screen_text(pilot.app)]
            assert "shell" in names and "login" not in names
            await pilot.press(*["down"] * 7)
            await shows(pilot, "localhost: ")
            await pilot.press("tab")
            await shows(pilot, "from localhost")
            await pilot.press("tab")
            app, screen = pilot.app, pilot.app.screen
            assert isinstance(app, TfmuxApp) and isinstance(screen, PreflightScreen)
            screen.query_one("#checks", Table).go_to(Check.LEFTOVERS, 1)
            await shows(pilot, f"the agent of run {run} is dead")
            await shows(pilot, f"tfmux kill {run} --file FILE")
            await pilot.press("x")
            await shows(pilot, "Kill this run")
            await pilot.press("y")
            await shows(pilot, "no process is left")
            left.wait(PATIENCE)
            await pilot.press("escape")
            await until(pilot, lambda: pilot.app.screen is screen)
            await until(pilot, lambda: not any(run in row for row in screen_text(app)))
            await shows(pilot, "✓ ready to launch")  # it has looked again by itself
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
    finally:
        left.kill()
        left.wait()


async def test_the_request_for_nodes_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Slurm there are no connections between hosts; Tab goes to the batch script."""

    async def checked(
        cluster: ClusterModel, ask: object, on_result: Callable[[Result], None]
    ) -> Report:
        finding = passed(Check.QUEUE, "Slurm", "accepted", "sbatch accepts the request")
        on_result(finding)
        request = request_of(cluster, make_plan(cluster, "c-1"))
        return Report(cluster.name, ("Slurm",), (finding,), (), (), 0.1, request, ENGINE_CHECKS)

    monkeypatch.setattr("tui.screens.preflight_screen.preflight", checked)
    library.create("c", render(SLURM, "c", {}, Path("/srv")))
    end = '[ "$ended" = 0 ] || status=$ended'
    async with home(size=(80, 24)) as pilot:
        await pilot.press("T")
        await shows(pilot, "✓ accepted")
        await shows(pilot, "sbatch")
        await shows(pilot, "--ntasks-per-node=1")
        await shows(pilot, "3 nodes of Slurm")
        await shows(pilot, "Tab nodes")
        assert isinstance(pilot.app, TfmuxApp)
        assert not any(end in row or "Connections" in row for row in screen_text(pilot.app))
        await pilot.press("tab", "end")
        await shows(pilot, end)
        await pilot.press("tab", "up")
        await shows(pilot, "sbatch accepts the request")
        await pilot.press("down", "down")
        await shows(pilot, "not checked: it takes a node")
