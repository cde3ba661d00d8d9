"""What every run keeps, wherever its hosts are: here, behind SSH, on Slurm, behind a command."""

from __future__ import annotations

import json
from collections.abc import Collection

from launcher.client.run_client import RunClient
from launcher.ids import TaskId
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.bed import Bed
from tests.support.command import Up
from tests.support.patience import wait_until
from tests.support.scenario import back, confirmed, last_states, lost, notes, ready, receipt
from tests.testbed import proc

EVERYTHING = "stubborn daemon orphan child holder chain"
TICK = 0.01
"""Seconds; the kernel counts the start of a process in these."""


def told(bed: Bed, up: Up, task: str) -> float:
    """Lets a task listen that has begun; returns when."""
    up.log(task, "here is")
    now = proc.now()
    bed.tell(up.run_id, f"listen.{task}")
    return now


def pids(up: Up) -> dict[str, int]:
    """The process of each task, as its agent says it."""
    return {event["task"]: event["pid"] for event in up.of("task") if event.get("pid")}


def figures_come(up: Up, hosts: Collection[str]) -> None:
    """Waits until another client has been told what each host has and what a task takes."""
    client = RunClient.attach(RunFolder.find(up.run_id))

    def come() -> bool:
        views = {host.name: host for host in client.snapshot().hosts}
        of_tasks = {task for host in views.values() for task in host.usage}
        return TaskId("worker", 1) in of_tasks and all(views[name].memory_total for name in hosts)

    try:
        wait_until(come, "figures of all hosts")
    finally:
        client.detach()


def test_all_start_in_order_and_one_key_ends_what_does_everything_not_to_die(bed: Bed) -> None:
    """Given tasks that ignore TERM, leave daemons, hold their output open and fork on and on, when
    Ctrl-C is pressed, then none is left, every host confirms it, and each log is whole. Each stage
    began when the earlier one listened, by the process table."""
    file = bed.file(modes=EVERYTHING, run="lease = 600\ngrace = 1", env={"LATE": "ps:0,worker:0"})
    with bed.up(file) as up:
        listened = [told(bed, up, "ps:0"), told(bed, up, "worker:0")]
        ready(up, *bed.tasks)
        began = {task: process.started + TICK for task, process in bed.first(up.run_id).items()}
        assert set(began) == set(bed.tasks)
        chief, *later = (began[task] for task in bed.tasks if task != "ps:0")
        assert chief > listened[0] and min(later) > listened[1]
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    found = receipt(up)
    assert confirmed(up) and set(found) == bed.hosts
    assert min(host["signalled"] for host in found.values()) >= 6
    bed.check_logs(up.run_id)
    bed.wait_dead(up.run_id)


def test_a_run_outlives_its_links_and_its_launcher(bed: Bed) -> None:
    """Given tasks that write all the time, when each link breaks in each way and another launcher
    takes over from a killed one without the file, then the processes are the same, no byte is lost,
    and the run ends clean."""
    file = bed.file(
        modes="child", run='lease = 600\ngrace = 1\non_disconnect = "keep"', env={"PACE": "0.02"}
    )
    with bed.up(file) as up:
        ready(up, *bed.tasks)
        before = pids(up)
        for link in bed.breaks(up):
            last = up.events[-1]
            link.begin()
            lost(up, link.host, after=last)
            link.end()
            back(up, link.host, after=last)
        run_id = up.run_id
        up.kill_launcher()
    file.unlink()

    def listed() -> bool:
        (run,) = json.loads(command.run("ps", "--json").stdout)
        assert run["run"] == run_id and not run["launcher"]
        return {task for host in run["hosts"] for task in host["tasks"]} == set(bed.tasks)

    wait_until(listed, "every host answers in the seconds that ps gives it")
    with Up("attach", run_id, "--json") as again:
        again.wait_for(lambda e: e.get("state") == "running" and e["event"] == "run", "running")
        ready(again, *bed.tasks)
        assert pids(up) == before == pids(again)
        assert {e["attempt"] for e in (*up.of("task"), *again.of("task"))} <= {0, 1}
        again.press_ctrl_c()
        assert again.wait() == 130, again.transcript()
    assert confirmed(again) and set(receipt(again)) == bed.hosts
    assert bed.check_logs(run_id) > 10_000
    bed.wait_dead(run_id)


def test_files_go_there_and_results_come_back(bed: Bed) -> None:
    """Given a workdir and a task that makes a file of one in it, when the workers are done, then
    the run is a success, each host's figures and the made file have come, and logs are whole."""
    work = bed.folder / "work"
    work.mkdir()
    (work / "note.txt").write_text("brought here\n")
    words = ["sh", "-c", "tr a-z A-Z <note.txt >made.txt; cat note.txt; exec sleep 1000"]
    place = bed.address(bed.places["worker"][-1])
    workers = [task for task in bed.tasks if task != "ps:0"]
    file = bed.file(
        run='workdir = "work"\ncollect = ["made.txt"]\ngrace = 1\nlease = 600\nsuccess = "all"',
        env={"FIRST": ",".join(workers), "FIRST_SECONDS": "all is seen"},
        extra=f'[jobs.helper]\ntasks = ["{place}"]\nin_cluster = false\n'
        f"command = {json.dumps(words)}\n",
    )
    with bed.up(file) as up:
        up.log("helper:0", "brought here")
        figures_come(up, bed.hosts)
        bed.tell(up.run_id, "all is seen")
        assert up.wait() == 0, up.transcript()
    states = last_states(up)
    assert {states[task] for task in workers} == {"exited"}
    assert states["ps:0"] == states["helper:0"] == "stopped" and confirmed(up)
    folder = RunFolder.find(up.run_id).path
    assert (folder / "helper-0.log").read_text() == "brought here\n"
    made = [*folder.rglob("made.txt"), *work.glob("made.txt")]
    assert [path.read_text() for path in made] == ["BROUGHT HERE\n"], notes(up)
    bed.check_logs(up.run_id, but=["helper:0"])
    bed.wait_dead(up.run_id)


def test_hosts_end_by_themselves_what_a_launcher_has_left(bed: Bed) -> None:
    """Given tasks with daemons whose environment is empty, when the launcher is killed and no other
    one comes, then every host ends all of them by its lease."""
    file = bed.file(modes="stubborn daemon", run=f"lease = {bed.lease}\ngrace = 1")
    with bed.up(file) as up:
        ready(up, *bed.tasks)
        up.kill_launcher()
    bed.wait_dead(up.run_id)
