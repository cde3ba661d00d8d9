"""Full disks, here and there: neither tasks nor launcher stop, and it is said."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, notes, ready

FAST = {"PACE": "0.0005"}

OVERFULL = {**FAST, "SECONDS": "3", "LEAST": str(3 << 19)}
"""Half again as much as the small disks have room for, however slow the machine."""


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's data directory on a file system of two megabytes, one of them in use."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "small", place], check=True)
    try:
        (place / "filler").write_bytes(bytes(1 << 20))
        monkeypatch.setenv("XDG_DATA_HOME", str(place))
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def count(scenario: FaultScenario, host: str, name: str) -> int:
    """How many bytes a task says it has written."""
    return int.from_bytes((scenario.ledger_folder(host) / name).read_bytes()[:8], "big")


def test_a_full_disk_here_delays_the_log_and_nothing_else(
    scenario: FaultScenario, small_disk: Path
) -> None:
    """Given a full disk here, when a host's task writes on, then a note says that its log is not
    stored; when there is room, then the rest comes from the host's copy, and the log is whole."""
    file = scenario.file({"ps": ["tf1"], "worker": ["tf3"]}, env=FAST, run="lease = 600\ngrace = 1")
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        up.wait_for(lambda e: "log not stored here" in e.get("note", ""), "said")
        name = f"{up.run_id}.worker-0.1"
        here = runs_home() / up.run_id / "worker-0.log"
        start = count(scenario, "tf3", name)
        wait_until(lambda: count(scenario, "tf3", name) > start + 100_000, "the task writes on")
        assert here.stat().st_size < start + 100_000
        subprocess.run(["mount", "-o", "remount,size=300m", small_disk], check=True)
        wait_until(lambda: here.stat().st_size > start + 100_000, "the stream goes on")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert scenario.check_logs(up.run_id) > start
    scenario.wait_dead()


def test_a_kill_needs_no_room(scenario: FaultScenario, small_disk: Path) -> None:
    """Given a full disk here, when Ctrl-C is pressed, then every host confirms that nothing is
    left, and a note says that the rest of the log stays on its host."""
    file = scenario.file({"ps": ["tf1"], "worker": ["tf3"]}, env=FAST, run="lease = 600\ngrace = 1")
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        up.wait_for(lambda e: "log not stored here" in e.get("note", ""), "said")
        here = runs_home() / up.run_id / "worker-0.log"
        name = f"{up.run_id}.worker-0.1"

        def missing() -> int:
            return count(scenario, "tf3", name) - here.stat().st_size

        wait_until(lambda: missing() > 100_000, "of this task, too, more than may find room")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert any("tf3 were not received; they stay on the host" in note for note in notes(up))
        there = (
            scenario.testbed["tf3"].disk / f"home/tfuser/.local/state/tfmux/{up.run_id}.tf3/logs"
        )
        subprocess.run(["mount", "-o", "remount,size=300m", small_disk], check=True)
        here.write_bytes((there / "worker-0.log").read_bytes())
        scenario.check_logs(up.run_id, whole=False, pace=0.0005)
    scenario.wait_dead()


@pytest.mark.prove
def test_local_tasks_survive_a_full_disk(scenario: FaultScenario, small_disk: Path) -> None:
    """Given a full disk here, when a task of this machine writes more than fits, then it exits and
    the run succeeds as ever, and notes say how much of its log was dropped."""
    file = scenario.file(
        {"ps": ["here"], "worker": ["here"]},
        env=OVERFULL,
        run="lease = 600\ngrace = 1",
    )
    with scenario.up(file) as up:
        assert up.wait() == 0, up.transcript()
        assert confirmed(up) and last_states(up)["worker:0"] == "exited"
        said = notes(up)
        assert any("log of worker:0" in note and "disk is full" in note for note in said), said
        assert any("bytes of its log were dropped on localhost" in note for note in said)
    scenario.wait_dead(up.run_id)


@pytest.mark.prove
def test_a_full_disk_there_stops_no_task(fresh_scenario: FaultScenario) -> None:
    """Given a host whose state directory is full, when a task there writes on, then it exits and
    the run succeeds as ever, and notes say that the disk is full and how much was dropped."""
    host = fresh_scenario.testbed["tf3"]
    state = f"{host.account.home}/.local/state"
    host.run(["mkdir", "-p", state])
    words = f"size=1m,mode=700,uid={host.account.uid},gid={host.account.uid}"
    host.run(["mount", "-t", "tmpfs", "-o", words, "small", state], as_user=False)
    file = fresh_scenario.file(
        {"ps": ["tf1"], "worker": ["tf3"]},
        env=OVERFULL,
        run="lease = 600\ngrace = 1",
    )
    with fresh_scenario.up(file) as up:
        assert up.wait() == 0, up.transcript()
        assert confirmed(up) and last_states(up)["worker:0"] == "exited"
        said = notes(up)
        assert any("tf3: the log of worker:0" in n and "disk is full" in n for n in said), said
        assert any("worker:0" in n and "dropped on tf3" in n for n in said), said
    fresh_scenario.wait_dead()


@pytest.mark.prove
def test_a_log_at_its_limit_is_cut_and_said(scenario: FaultScenario) -> None:
    """Given a `log_limit`, when tasks write more, then they go on, their logs here have exactly
    that size, and notes say so. A task of this machine has one log, which its agent writes."""
    file = scenario.file(
        {"ps": ["tf1"], "worker": ["tf3", "here"]},
        env={**FAST, "SECONDS": "4", "LEAST": "40000"},
        run="lease = 600\ngrace = 1\nlog_limit = 20000",
    )
    with scenario.up(file) as up:
        ready(up, "worker:1")
        folder = RunFolder.find(up.run_id).path
        state = scenario.folder / "home/.local/state/tfmux"
        assert not list(state.glob("*/logs/*")), "a second copy of a local log"
        assert up.wait() == 0, up.transcript()
        for task in ("worker-0", "worker-1"):
            assert (folder / f"{task}.log").stat().st_size == 20000
        for task in ("worker:0", "worker:1"):
            assert any(f"the log of {task}: it has reached its log_limit" in n for n in notes(up))
            assert any(f"{task}:" in n and "(log_limit)" in n for n in notes(up))
    scenario.wait_dead(up.run_id)
