"""The cable is pulled: no FIN, no error, only silence."""

from __future__ import annotations

import subprocess

import pytest

from launcher.cluster.read import load
from launcher.hosts.auth_prompt import AuthPrompt, PromptKind
from launcher.run.states import HostState
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import (
    FaultScenario,
    confirmed,
    last_states,
    lost,
    notes,
    ready,
    receipt,
)
from tests.support.streams import records
from tests.testbed import faults

PLACES = {"ps": ["tf1"], "worker": ["tf1", "tf3", "tf4"]}
CUT = {"ps": ["tf1"], "worker": ["tf1", "tf3"]}


@pytest.mark.prove
def test_after_a_cut_of_all_cables_nobody_is_asked_again(fresh_scenario: FaultScenario) -> None:
    """Given two hosts with a locked key and two with passwords, given once, when all cables are cut
    and healed, then all hosts are back and nobody is asked again: at night nobody would answer."""
    scenario = fresh_scenario
    locked = scenario.testbed.directory / "id_ed25519"
    argv = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "passphrase", "-f", str(locked)]
    subprocess.run(argv, check=True, capture_output=True)
    for name in ("tf3", "tf4"):
        faults.ask_for_password(scenario.testbed[name], f"password of {name}")
    asked: list[AuthPrompt] = []

    async def person(prompt: AuthPrompt) -> str | None:
        asked.append(prompt)
        if prompt.kind is PromptKind.PASSPHRASE:
            return "passphrase"
        return f"password of {prompt.host}"

    hosts = ["tf1", "tf2", "tf3", "tf4"]
    file = scenario.file({"worker": hosts}, run="lease = 600\ngrace = 1")

    def all_are(*states: HostState) -> bool:
        return {host.state for host in client.snapshot().hosts} == {*states}

    client = RunClient.launch(load(file), file.read_text(), ask=person)
    client.await_state(PATIENCE)
    try:
        wait_until(lambda: all_are(HostState.UP), "all hosts are up")
        wait_until(lambda: all(task.pid for task in client.snapshot().tasks), "all tasks run")
        assert sorted(prompt.kind for prompt in asked) == [
            PromptKind.PASSPHRASE, PromptKind.PASSWORD, PromptKind.PASSWORD
        ]  # fmt: skip
        for name in hosts:
            scenario.testbed[name].pull()
        wait_until(lambda: all_are(HostState.LOST), "all hosts are lost")
        for name in hosts:
            scenario.testbed[name].heal()
        wait_until(lambda: all_are(HostState.UP), "all hosts are back")
        assert len(asked) == 3
        assert {task.attempt for task in client.snapshot().tasks} == {1}
    finally:
        client.kill_all()
        client.wait(PATIENCE)
        client.close()


def test_a_cut_longer_than_the_lease_ends_the_host_by_itself(scenario: FaultScenario) -> None:
    """Given a host that is cut off, when its lease is over, then it ends its tasks by itself, and
    exit 4 names it and `tfmux kill`, which finishes the run once the cable is back."""
    file = scenario.file(
        CUT,
        run="lease = 8\ngrace = 1",
        modes={"worker": "orphan child"},
    )
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        scenario.testbed["tf3"].pull()
        mine = {p.pid for p in scenario.bystanders["tf3"]}
        wait_until(
            lambda: all(p.pid in mine for p in scenario.testbed["tf3"].leftovers()),
            "the cut host has ended everything by itself",
        )
        assert up.process.poll() is None, "the launcher still waits for it"
        assert up.wait() == 4, up.transcript()
        away = receipt(up)["tf3"]
        assert not away["confirmed"]
        assert away["unreachable_until"] is None, "a time that has passed"
        assert receipt(up)["tf1"]["confirmed"]
        assert "tf3: unreachable" in up.said
        assert f"tfmux kill {up.run_id}" in up.said
        run_id = up.run_id
        scenario.testbed["tf3"].heal()
        code, said = scenario.kill(run_id)
        assert code == 0 and "no process is left" in said, said
    scenario.wait_dead()
    host = scenario.testbed["tf3"]
    wait_until(lambda: not host.run(["ls", ".local/state/tfmux"]).stdout, "the run's folder goes")


def test_a_cut_that_heals_after_the_lease_says_what_happened(scenario: FaultScenario) -> None:
    """Given a cut host that has ended its tasks by its lease, when the cable is back before the
    launcher gives up, then a note says what happened, and the run fails, confirmed by all hosts."""
    file = scenario.file(CUT, run="lease = 8\ngrace = 60")  # so long the launcher waits, too
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        scenario.testbed["tf3"].pull()
        mine = {p.pid for p in scenario.bystanders["tf3"]}
        wait_until(
            lambda: all(p.pid in mine for p in scenario.testbed["tf3"].leftovers()), "all ended"
        )
        scenario.testbed["tf3"].heal()
        assert up.wait() == 1, up.transcript()
        assert any("tf3 is back (meanwhile: no launcher for" in note for note in notes(up))
        assert confirmed(up)
        assert last_states(up)["worker:1"] in ("failed", "stopped"), "ended from outside"
        scenario.check_logs(up.run_id)
    scenario.wait_dead()


def test_a_cut_while_staging_and_starting_goes_on_afterwards(scenario: FaultScenario) -> None:
    """Given hosts that are cut off while files are staged or before a task's start has arrived,
    when the cables are back, then files and starts arrive, and each task has started once."""
    work = scenario.folder / "work"
    work.mkdir()
    (work / "blob").write_bytes(bytes(range(256)) * 80_000)
    file = scenario.file(
        PLACES,
        run='lease = 600\ngrace = 1\nworkdir = "work"',
        env={"SECONDS": "all are back", "LATE": "ps:0"},
    )
    with scenario.up(file) as up:
        up.state("worker:1", "staging")
        scenario.testbed["tf3"].pull()
        lost(up, "tf3")
        scenario.testbed["tf3"].heal()
        up.log("ps:0", "here is")
        scenario.testbed["tf4"].pull()  # the start of worker:2 goes into the void
        scenario.tell(up.run_id, "listen")
        ready(up, "worker:0")
        lost(up, "tf4")
        scenario.testbed["tf4"].heal()
        ready(up, "worker:1", "worker:2")
        scenario.tell(up.run_id, "all are back")
        assert up.wait() == 0, up.transcript()
        folder = RunFolder.find(up.run_id)
        starts = [
            (r["task"], r["attempt"])
            for r in records(folder)
            if r["event"] == "task" and r["state"] == "starting" and "pid" not in r
        ]
        assert sorted(set(starts)) == [(t, 1) for t in sorted({task for task, _ in starts})]
        scenario.check_logs(up.run_id)
    scenario.wait_dead()


def test_a_rank_that_is_cut_off_when_rank_0_was_done_is_no_success(scenario: FaultScenario) -> None:
    """Given a chief that has ended with 0 while a worker is at work on a host that is cut off, when
    it has been lost for `finish_timeout`, then the run has failed and does not wait for the lease;
    the receipt is what SSH can say of the host, and the loss is named as on Slurm."""
    file = scenario.file(
        {"worker": ["tf1", "tf3"]},
        run='lease = 600\ngrace = 1\nfinish_timeout = 3\nsuccess = "chief"',
        env={"FIRST": "worker:0", "FIRST_SECONDS": "go on", "SECONDS": "never"},
    )
    with scenario.up(file) as up:
        ready(up, "worker:0", "worker:1")
        scenario.tell(up.run_id, "go on")
        up.state("worker:0", "exited")
        scenario.testbed["tf3"].pull()
        try:
            assert up.wait() == 4, up.transcript()
        finally:
            scenario.testbed["tf3"].heal()
        run = up.of("run")[-1]
        assert (run["outcome"], run["first_failure"]["task"]) == ("failed", "worker:1")
        assert run["first_failure"]["how"] == "lost"
        assert scenario.kill(up.run_id)[0] == 0
        scenario.wait_dead(up.run_id)
