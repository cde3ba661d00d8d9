"""Findings of a preflight: made from agents' answers, with a sentence to act on, and shown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from launcher.cluster.choices import Framework
from launcher.cluster.read import loads
from launcher.hosts.frames import GpusAnswer, PortOwner
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.preflight import (
    Check,
    Finding,
    Reach,
    Reachability,
    Report,
    Severity,
    evaluation,
    reachability,
)
from launcher.preflight.probes import (
    AccountAnswer,
    ConnectAnswer,
    DiskSpaceAnswer,
    HeldFrame,
    PythonAnswer,
)
from launcher.preflight.repairs import setting_of
from launcher.run.gpus import GpuProcess, GpuView
from tests.support.cluster_texts import cluster_text
from tui.outcome import TERMINAL
from tui.preflight_view import about_pair, checks_table, reach_table, verdict
from tui.tables import NOTHING, TableRow, rich_tables

GB = 1000**3
BASH = {"user": "me", "shell": "/bin/bash"}


def plan(jobs: str, settings: str = "") -> Plan:
    """The plan of a cluster of three SSH hosts."""
    hosts = "".join(f'[hosts.h{n}]\nssh = "10.0.0.{n}"\n' for n in (1, 2, 3))
    text = f'{hosts}{jobs}\n[run]\ncommand = ["x"]\n{settings}'
    return make_plan(loads(text, "x.toml", Path("/")), "check")


def only(findings: Iterable[Finding]) -> Finding:
    """The one finding."""
    (found,) = findings
    return found


@pytest.mark.parametrize(
    ("name", "resolved", "warned"),
    [
        ("tf1", ["127.0.1.1"], True),
        ("tf1", ["::1", "10.0.0.1"], True),
        ("tf1", ["10.0.0.1", "127.0.1.1"], False),
        ("tf1", ["10.0.0.1"], False),
        ("tf1", [], False),
        ("10.0.0.1", ["10.0.0.1"], False),
        ("127.0.0.1", ["127.0.0.1"], False),
    ],
)
def test_a_hosts_own_name_there(name: str, resolved: list[str], warned: bool) -> None:
    """The address that comes first is the one that a server takes; where the file gives a loopback
    address, it says itself that all is one machine."""
    found = [finding.code for finding in evaluation.own_address("tf1", name, resolved)]
    assert found == (["address-loopback"] if warned else [])


@pytest.mark.parametrize(
    ("shell", "noise", "codes"),
    [
        ("/bin/bash", b"", ["ok"]),
        ("/usr/bin/zsh", b"", ["ok"]),
        ("/bin/tcsh", b"", ["shell-odd"]),
        ("/usr/bin/fish", b"hi\n", ["shell-odd", "shell-noise"]),
        ("/opt/strange", b"", ["shell-odd"]),
        ("/bin/bash", b"\n  \n", ["ok"]),
        ("/bin/bash", b"\x1b[31mwelcome\n", ["shell-noise"]),
    ],
)
def test_login_shells(shell: str, noise: bytes, codes: list[str]) -> None:
    """Plain ones pass, odd ones and ones that print are warned of; no escape gets through."""
    found = list(evaluation.shell("h1", AccountAnswer(user="me", shell=shell, proxies={}), noise))
    assert [finding.code for finding in found] == codes
    assert all(finding.severity is not Severity.ERROR for finding in found)
    assert not any("\x1b" in finding.sentence for finding in found)


@pytest.mark.parametrize(
    ("answer", "needed", "code", "severity"),
    [
        ({"tensorflow": "2.21.0", "there": True}, True, "ok", Severity.OK),
        ({"tensorflow": "", "there": True}, True, "tensorflow-unversioned", Severity.WARN),
        ({"tensorflow": "", "there": False}, True, "tensorflow-missing", Severity.ERROR),
        ({"tensorflow": "", "there": False}, False, "tensorflow-missing", Severity.WARN),
    ],
)
def test_tensorflow(answer: dict[str, Any], needed: bool, code: str, severity: Severity) -> None:
    """Its absence stops the bundled trainer, and is only a warning for a script of one's own."""
    python = PythonAnswer(version="3.11.2", **answer)
    found = evaluation.tensorflow("h1", "python3", python, needed=needed)
    assert (found.code, found.severity) == (code, severity)


@pytest.mark.parametrize(
    ("version", "old"),
    [("3.8.20", True), ("3.9.2", True), ("3.10.0", False), ("3.14.0rc1", False), ("?", False)],
)
def test_the_python_of_the_bundled_trainer(version: str, old: bool) -> None:
    """The trainer needs a newer Python than the agent does."""
    found = list(evaluation.trainer_python("h1", "python3", PythonAnswer(version=version)))
    assert [(one.code, one.severity) for one in found] == [("python-old", Severity.ERROR)] * old
    if old:
        told = f"the bundled trainer needs Python 3.10 or newer, and python3 is {version}"
        assert found[0].sentence == told


T4 = GpuView(0, "T4", "GPU-0")


@pytest.mark.parametrize(
    ("rows", "why", "promised", "code"),
    [
        ([], "", 0, "ok"),
        ([T4], "", 1, "ok"),
        ([T4], "", 2, "gpus-fewer"),
        ([], "Failed to initialize NVML", 1, "gpu-driver"),
        ([T4], "Unable to determine the device handle", 1, "gpu-driver"),
    ],
)
def test_gpus(rows: list[GpuView], why: str, promised: int, code: str) -> None:
    """Fewer than the file counts on, and a driver that fails."""
    assert evaluation.gpus("h1", GpusAnswer(gpus=tuple(rows), why=why), promised).code == code


def test_gpus_are_told_with_their_kinds_and_driver() -> None:
    """In a sentence, and in short for a cell."""
    rows = tuple(replace(T4, index=number) for number in range(2))
    found = evaluation.gpus("h1", GpusAnswer(gpus=rows, driver="535.161"), 2)
    assert found.sentence == "2 × T4, driver 535.161"
    assert found.brief == "2, driver 535.161"


def test_more_ranks_than_gpus() -> None:
    """A warning where a host has some; without any all train on the CPU."""
    found = only(evaluation.ranks("h1", 3, 2, Framework.TORCH))
    assert (found.code, found.severity) == ("gpus-fewer-than-ranks", Severity.WARN)
    assert "3 ranks on h1, which has 2 GPUs" in found.sentence
    assert not [
        *evaluation.ranks("h1", 2, 2, Framework.JAX),
        *evaluation.ranks("h1", 3, 0, Framework.JAX),
    ]


@pytest.mark.parametrize(
    ("free", "code"),
    [
        (50 * GB, "ok"),
        (evaluation.DISK_LOW, "ok"),
        (evaluation.DISK_LOW - 1, "disk-low"),
        (evaluation.DISK_FULL, "disk-low"),
        (evaluation.DISK_FULL - 1, "disk-full"),
        (0, "disk-full"),
    ],
)
def test_disks(free: int, code: str) -> None:
    """Low below a threshold, not at it; one finding a file system, however many folders lie on
    it."""
    disks = (("one", "/home/me", free, 7), ("two", "/home/me/logs", free, 7))
    assert only(evaluation.disks("h1", DiskSpaceAnswer(disks=disks, memory=(0, 0)))).code == code


@pytest.mark.parametrize(
    ("free", "runs", "held", "words"),
    [
        (50 * GB, 12, 340 * GB, "50 GB free; 12 ended runs hold 340 GB"),
        (50 * GB, 1, 5 * GB, "50 GB free; 1 ended run holds 5.0 GB"),
        (50 * GB, 3, 1000, "50 GB free"),
        (9 * GB, 0, 0, "9.0 GB free (9 %) in /home/me, which holds tfmux's own folder"),
        (9 * GB, 2, 80 * GB, "; 2 ended runs hold 80 GB"),
    ],
)
def test_what_ended_runs_hold_is_told(free: int, runs: int, held: int, words: str) -> None:
    """In the table from a gigabyte on; and where a tenth of the disk or less is free, in the
    warning, with what frees it."""
    disks = (("tfmux's own folder", "/home/me", free, 7), ("two", "/logs", 500 * GB, 8))
    found = only(
        evaluation.disks(
            "h1",
            DiskSpaceAnswer(
                disks=disks,
                memory=(0, 0),
                size=100 * GB,
                held=HeldFrame(runs=runs, bytes=held, cut=False),
            ),
        )
    )
    if free > 10 * GB:
        assert found.code == "ok" and found.brief == words
    else:
        assert found.code == "disk-low" and words in found.sentence
        assert ("`tfmux rm --hosts`" in found.todo) is bool(runs)


def test_a_full_disk_leads_to_the_setting_of_its_place_if_there_is_one() -> None:
    """Another log directory is written in the file; where tfmux has its own folder is not."""
    cluster = loads(cluster_text({"worker": "localhost"}), "x.toml", Path("/"))
    disks = (("tfmux's own folder", "/home/me", 0, 7), ("the log directory", "/scratch", 0, 8))
    own, logs = evaluation.disks("h1", DiskSpaceAnswer(disks=disks, memory=(0, 0)))
    assert (own.code, setting_of(cluster, own)) == ("disk-full", ())
    assert (logs.code, setting_of(cluster, logs)) == ("logdir-full", ("run", "logdir"))


@pytest.mark.parametrize("free", [0, evaluation.DISK_FULL - 1, evaluation.DISK_FULL])
def test_a_full_tmp_is_a_warning_and_a_small_one_is_nothing(free: int) -> None:
    """Agents start there, and many a container has one of a few megabytes."""
    disks = (("tfmux's own folder", "/home/me", 50 * GB, 7), ("temporary files", "/tmp", free, 8))
    found = only(evaluation.disks("h1", DiskSpaceAnswer(disks=disks, memory=(0, 0))))
    if free == evaluation.DISK_FULL:
        assert (found.code, found.brief) == ("ok", "50 GB free")
    else:
        assert (found.code, found.severity.value) == ("tmp-full", "warn")


@pytest.mark.parametrize(
    ("offset", "round_trip", "code"),
    [(0.5, 0.01, "ok"), (-3.0, 0.01, "clock-off"), (3.0, 2.0, "ok"), (3600.0, 2.0, "clock-off")],
)
def test_clocks(offset: float, round_trip: float, code: str) -> None:
    """What a slow round trip may have caused is not blamed on the clock."""
    assert evaluation.clock("h1", offset, round_trip).code == code


@pytest.mark.parametrize(
    ("name", "resolved", "code"),
    [
        ("h1", ["10.0.0.1"], "ok"),
        ("h1", ["127.0.0.1", "192.168.1.1"], "ok"),
        ("h1", ["fd00::1"], "ok"),
        ("h1", ["fe80::1%eth0"], "ok"),
        ("h1", ["100.64.0.1"], "ok"),
        ("h1", ["8.8.8.8"], "address-public"),
        ("8.8.8.8", [], "address-public"),
        ("h1", ["10.0.0.1", "2001:4860:4860::8888"], "address-public"),
    ],
)
def test_addresses(name: str, resolved: list[str], code: str) -> None:
    """Public ones are warned of: gRPC has no authentication."""
    found = evaluation.address("h1", name, resolved)
    assert found is not None and found.code == code


def test_an_address_that_nobody_resolved_is_not_judged() -> None:
    """Nothing is reported that was not seen."""
    assert evaluation.address("h1", "h1", []) is None


def test_held_ports_name_their_holder() -> None:
    """A run's task by run and task, another program by its command, what we may not see as that."""
    task = PortOwner(port=1, pid=7, command="python x", task="R-1/worker:1/2")
    other = PortOwner(port=2, pid=8, command="nginx")
    foreign = PortOwner(port=3, pid=0, command="")
    ann = PortOwner(port=4, pid=0, command="", account="ann\x1b[31m")
    mine = PortOwner(port=5, pid=0, command="", account="me", own=True)
    wanted = {TaskId("w", index): port for index, port in enumerate((1, 2, 3, 4, 5, 80))}
    failed = {"80": "Permission denied"}
    held = [task, other, foreign, ann, mine]
    found = list(evaluation.ports("h1", wanted, held, failed, [80]))
    assert [finding.task for finding in found] == list(wanted)
    assert [finding.code for finding in found] == ["port-in-use"] * 5 + ["port-forbidden"]
    assert "by a process of ann" in found[3].sentence and found[3].sentence.isprintable()
    assert found[3].todo == "use another port, or auto"
    assert "of this account that is not seen here" in found[4].sentence
    assert found[0].sentence.endswith("by pid 7 of worker:1 of the run R-1 (python x)")
    assert found[0].todo == "end that run: tfmux kill R-1"
    assert "nginx" in found[1].sentence and found[2].sentence.endswith("or one that is ending")
    assert {finding.severity for finding in found} == {Severity.ERROR}


def test_ports_are_free_when_all_of_them_are() -> None:
    """One that is held, or that cannot be listened on, is not called free beside that."""
    wanted = {TaskId("w", index): 2000 + index for index in range(9)}
    held = PortOwner(port=2000, pid=8, command="nginx")
    assert only(evaluation.ports("h1", wanted, [held], {})).code == "port-in-use"
    assert only(evaluation.ports("h1", wanted, [], {"2001": "in use"})).code == "port-unusable"
    free = only(evaluation.ports("h1", wanted, [], {}))
    assert free.code == "ok"
    assert free.sentence == "free: 2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, …"


def test_leftovers_are_told_run_by_run() -> None:
    """Run, tasks, pids, and the command that ends them."""
    rows = [["A", "ps:0", 1, "x"], ["B", "", 2, "y"], ["A", "worker:0", 3, "z"]]
    first, second = evaluation.leftovers("h1", rows, {"A"})
    assert "run A" in first.sentence and "ps:0, worker:0" in first.sentence
    assert "pid 1, 3" in first.sentence and first.todo == "end them: tfmux kill A"
    assert (first.run, second.run) == ("A", "B")
    assert second.todo.startswith("end them: tfmux kill B --file FILE")  # launched elsewhere


@pytest.mark.parametrize(("count", "end"), [(10, ", 10 (x)"), (11, ", 10, … (x)")])
def test_of_many_leftovers_the_first_ten_are_named(count: int, end: str) -> None:
    """The sentence says whether there are more, and the column how many there are."""
    rows = [["A", "ps:0", number, "x"] for number in range(1, count + 1)]
    (finding,) = evaluation.leftovers("h1", rows, {"A"})
    assert finding.sentence.endswith(end) and finding.brief == f"{count} left"


# --- the matrix -------------------------------------------------------------------------------


def test_every_host_must_reach_every_cluster_task_of_the_others() -> None:
    """Helpers and evaluators stand in no spec; a host's only task need not be reached by it."""
    cluster = plan(
        '[jobs.ps]\ntasks = ["h1:2222"]\n[jobs.worker]\ntasks = ["h2:2222", "h2:2223"]\n'
        '[jobs.evaluator]\ntasks = ["h3:auto"]\n'
        '[jobs.board]\ntasks = ["h3:6006"]\nin_cluster = false\n'
    )
    assert reachability.sources(cluster) == ("h1", "h2")
    wanted = {s: [str(t.id) for t in reachability.targets(cluster, s)] for s in ("h1", "h2", "h3")}
    assert wanted == {
        "h1": ["worker:0", "worker:1"],
        "h2": ["ps:0", "worker:0", "worker:1"],
        "h3": [],
    }


def answer(outcome: str, resolved: float = 0.01, connected: float = 0.01) -> ConnectAnswer:
    """How a connection went."""
    said = {"outcome": outcome, "address": "10.0.0.1"}
    return ConnectAnswer.model_validate({**said, "resolved": resolved, "connected": connected})


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("refused", "is refused by h1:2222 (10.0.0.1)"),
        ("unresolved", "cannot resolve h1"),
        ("filtered", "gets no answer within 4 s"),
        ("no-route", "has no route to h1"),
        ("stranger", "another machine or program at h1:2222"),
        ("failed", "cannot connect"),
    ],
)
def test_each_way_to_fail_has_its_own_sentence(outcome: str, words: str) -> None:
    task = plan('[jobs.ps]\ntasks = ["h1:2222"]').tasks[0]
    pair = reachability.outcome("h2", task, "h1:2222", answer(outcome))
    found = reachability.finding(pair, answer(outcome))
    assert found is not None
    assert (found.severity, found.code, found.host) == (Severity.ERROR, f"reach-{outcome}", "h2")
    assert words in found.sentence and found.todo
    by_name = outcome in ("unresolved", "no-route")
    assert (found.task, found.other) == (None if by_name else TaskId("ps", 0), "h1")
    assert by_name or "ps:0" in found.sentence
    assert pair.explained_by(found)


@pytest.mark.parametrize(
    ("resolved", "connected", "words"), [(1.5, 0.1, "the name takes"), (0.1, 1.5, "the connection")]
)
def test_a_slow_way_says_what_is_slow(resolved: float, connected: float, words: str) -> None:
    slow = answer("ok", resolved, connected)
    task = plan('[jobs.ps]\ntasks = ["h1:2222"]').tasks[0]
    pair = reachability.outcome("h2", task, "h1:2222", slow)
    found = reachability.finding(pair, slow)
    assert pair.reach is Reach.SLOW and found is not None
    assert found.severity is Severity.WARN and words in found.sentence


def test_what_was_not_tried_is_unknown_and_blames_nobody() -> None:
    """A pair whose other end could not be asked."""
    task = plan('[jobs.ps]\ntasks = ["h1:2222"]').tasks[0]
    pair = reachability.outcome("h2", task, "h1:2222", None)
    assert pair == Reachability("h2", TaskId("ps", 0), "h1", "h1:2222", Reach.UNKNOWN)
    assert reachability.finding(pair, answer("ok")) is None


# --- beside other hosts -----------------------------------------------------------------------


def test_the_odd_tensorflow_is_the_one_that_is_warned_of() -> None:
    """The version that most hosts have is taken for the wanted one."""
    assert list(evaluation.versions({"h1": "2.21.0", "h2": "2.21.0"})) == []
    found = only(evaluation.versions({"h1": "2.21.0", "h2": "2.16.1", "h3": "2.21.0"}))
    assert (found.host, found.code, found.check) == ("h2", "tensorflow-differs", Check.TENSORFLOW)
    assert "is 2.16.1 here and 2.21.0 on h1, h3: their" in found.sentence
    first = {"h1": "2.16.1", "h2": "2.21.0", "h3": "2.21.0"}
    assert only(evaluation.versions(first)).host == "h1"
    many = {**{f"h{number}": "2.21.0" for number in range(9)}, "odd": "2.16.1"}
    assert "on h0, h1, h2, h3, h4: their" in only(evaluation.versions(many)).sentence


@pytest.mark.parametrize(
    ("jobs", "settings", "others"),
    [
        ('[jobs.worker]\ntasks = ["h1:1", "h2:1"]', "", ()),
        ('[jobs.worker]\ntasks = ["h1:1", "h2:1"]', 'on_failure = "restart"', ("h2",)),
        ('[jobs.worker]\ntasks = ["h1:1", "h1:2"]', 'on_failure = "restart"', ()),
        ('[jobs.worker]\ntasks = ["h1:1"]\n[jobs.evaluator]\ntasks = ["h3:auto"]', "", ("h3",)),
        ('[jobs.ps]\ntasks = ["h1:1"]', 'on_failure = "restart"', ()),
    ],
)
def test_who_must_share_the_chiefs_log_directory(
    jobs: str, settings: str, others: tuple[str, ...]
) -> None:
    """An evaluator always, everybody when a restart must find the last checkpoint."""
    assert evaluation.sharers(plan(jobs, settings))[1] == others


@pytest.mark.parametrize(("lacking", "code"), [(0, "ok"), (1, "memory-low")])
def test_memory_is_low_below_what_its_tasks_take(lacking: int, code: str) -> None:
    memory = (3 * evaluation.MEMORY_LOW - lacking, 64 << 30)
    answer = DiskSpaceAnswer(disks=(("logs", "/", 1, 7),), memory=memory)
    assert evaluation.memory("h1", answer, 3).code == code


# --- GPUs that the plan gives away ---------------------------------------------------------------

GIB = 1 << 30
SWEEP = GpuProcess(pid=455, user="alice", command="python3 sweep.py", memory=61 * GIB)


def h200(index: int = 0, **values: Any) -> GpuView:
    """A GPU of which nothing is in use, unless a value says so."""
    own = {"memory_used": 0, "memory_total": 140 * GIB, "mode": "Default"}
    return GpuView(index, "H200", f"GPU-{index}", **{**own, **values})


@pytest.mark.parametrize(
    ("gpus", "tasks", "codes"),
    [
        ([h200(0), h200(1)], 4, []),
        ([h200(0, memory_used=61 * GIB, processes=(SWEEP,)), h200(1)], 2, ["gpu-held"]),
        ([h200(0, memory_used=61 * GIB)], 1, ["gpu-held"]),
        ([h200(0, memory_used=600 << 20)], 1, []),
        ([h200(0, processes=(replace(SWEEP, memory=1 << 20),))], 1, []),
        ([h200(0, processes=(replace(SWEEP, memory=None),))], 1, ["gpu-held"]),
        ([h200(0, memory_total=80 * GIB), h200(1)], 2, ["gpu-memory"]),
        ([h200(0, memory_used=None, memory_total=None), h200(1)], 2, []),
        ([h200(0, mode="Prohibited")], 1, ["gpu-mode"]),
        ([h200(0, mode="Exclusive_Process")], 1, []),
        ([h200(0, mode="Exclusive_Process")], 2, ["gpu-mode"]),
        ([h200(0, problem="GPU requires reset")], 1, ["gpu-fault"]),
        ([h200(0, ecc_errors=3)], 1, ["gpu-fault"]),
        ([], 2, []),
    ],
)
def test_gpus_that_the_plan_gives_away(gpus: list[GpuView], tasks: int, codes: list[str]) -> None:
    """Each trouble has a code; a desktop, an own program's rest and an idle GPU are none."""
    assert [found.code for found in evaluation.given_gpus("h1", gpus, tasks)] == codes


def test_who_holds_a_gpu_is_named() -> None:
    """By user, pid, command and size; of what is not listed the size."""
    held = h200(0, memory_used=62 * GIB, processes=(SWEEP,))
    found = only(evaluation.given_gpus("h1", [held, h200(1, memory_used=20 * GIB)], 2))
    assert found.sentence == (
        "GPU 0 is held by alice's pid 455 (python3 sweep.py), 65 GB, 1.1 GB by processes that "
        "nvidia-smi does not list; GPU 1 is held by processes that nvidia-smi does not list, "
        "21 GB"
    )


@pytest.mark.parametrize(
    ("cuda", "driver", "problem"),
    [
        ("13.0", "12.8", True),
        ("12.8", "12.2", False),  # drivers run all minor versions
        ("11.8", "13.0", False),
        ("", "12.2", False),
        ("12.1", "", False),
        ("12.1", "11.4", True),
    ],
)
def test_packages_that_need_a_newer_driver(cuda: str, driver: str, problem: bool) -> None:
    """The first number of both versions counts, and what is not known is no trouble."""
    python = PythonAnswer(version="3.12.3", cuda=cuda, cuda_of="torch 2.9.0+cu130")
    answer = GpusAnswer(gpus=(T4,), driver="550.54", cuda=driver)
    found = [one.code for one in evaluation.cuda("h1", answer, python)]
    assert found == ["gpu-cuda"] * problem


# Tables and texts of a preflight, made from its values alone.


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
