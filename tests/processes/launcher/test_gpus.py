"""GPUs of a host: asked by a program that tells of lost and full ones, or hangs; in runs, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.agent import wire
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.agent_client import Client, family
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.nvidia_smi import FakeNvidiaSmi, app, gpu
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until

MIB = 1 << 20
OTHER = "GPU-00000001-1111-2222-3333-444444444444"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvidiaSmi:
    """The `nvidia-smi` of all hosts of the test."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return FakeNvidiaSmi(tmp_path / "bin")


def listed(client: Client) -> dict[str, Any]:
    return client.ask(wire.GPUS, {})


def sampled(client: Client) -> dict[str, Any]:
    """The first answer with GPUs, or a word about them."""
    said: list[dict[str, Any]] = []

    def told() -> bool:
        said.append(client.ask(wire.STATS, {}))
        return bool(said[-1]["gpus"] or said[-1]["gpu_problem"])

    wait_until(told, "nvidia-smi has answered")
    return said[-1]


def test_a_gpu_is_told_with_its_figures(smi: FakeNvidiaSmi) -> None:
    """Given what a real H200 has printed, then it comes as numbers in one unit each."""
    smi.say(gpu=[gpu(0, clocks_throttle_reasons__active="0x0000000000000024")])
    with Client() as client:
        client.hello()
        (seen,) = sampled(client)["gpus"]
        client.leave()
    assert (seen["index"], seen["name"]) == (0, "NVIDIA H200")
    assert seen["uuid"] == "GPU-00000000-1111-2222-3333-444444444444"
    assert (seen["utilisation"], seen["temperature"]) == (1.0, 62)
    assert (seen["memory_used"], seen["memory_total"]) == (4390 * MIB, 143771 * MIB)
    assert (seen["power"], seen["power_limit"]) == (656.79, 700)
    assert (seen["throttled"], seen["ecc_errors"]) == (["power-cap", "thermal"], 0)
    assert seen["mode"] == "Default"


SLOWED = {
    "0x0000000000000000": [],
    "0x0000000000000001": [],  # idle
    "0x0000000000000004": ["power-cap"],
    "0x0000000000000020": ["thermal"],
    "0x0000000000000008": ["hardware"],
    "0x0000000000000068": ["thermal"],
    "0x0000000000000088": ["power-brake"],
    "0x0000000000000084": ["power-cap", "power-brake"],
    "[N/A]": [],
}


def test_each_gpu_says_why_it_is_slowed_down(smi: FakeNvidiaSmi) -> None:
    """Heat and the power brake set the bit of the hardware, too."""
    rows = enumerate(SLOWED)
    smi.say(gpu=[gpu(number, clocks_throttle_reasons__active=bits) for number, bits in rows])
    with Client() as client:
        client.hello()
        seen = sampled(client)["gpus"]
        client.leave()
    assert [each["throttled"] for each in seen] == list(SLOWED.values())


UNKNOWN = ("[N/A]", "[Not Supported]", "N/A", "[Unknown]", "[Insufficient Permissions]", "", "-5")


def test_a_figure_that_is_not_told_is_unknown(smi: FakeNvidiaSmi) -> None:
    """And is no reason to doubt the GPU."""
    names = [name for name in gpu(0) if name not in ("index", "uuid", "pci.bus_id", "name")]
    rows = enumerate(UNKNOWN)
    smi.say(gpu=[{**gpu(number), **dict.fromkeys(names, value)} for number, value in rows])
    with Client() as client:
        client.hello()
        seen = listed(client)["gpus"]
        client.leave()
    figures = ("utilisation", "memory_used", "memory_total", "temperature", "power", "ecc_errors")
    for value, each in zip(UNKNOWN, seen, strict=True):
        assert [each[name] for name in figures] == [None] * len(figures), value
        assert each["problem"] == "", value


ERRORS = {
    "100 %": "",
    "[GPU is lost]": "GPU is lost",
    "[GPU requires reset]": "GPU requires reset",
    "[Unknown Error]": "Unknown Error",
    "ERR!": "ERR!",
}


def test_a_gpu_that_answers_with_errors_is_called_so(smi: FakeNvidiaSmi) -> None:
    """Given GPUs that are listed, and whose figures are errors, then their problems are told."""
    rows = enumerate(ERRORS)
    smi.say(gpu=[gpu(n, utilization__gpu=value, temperature__gpu=value) for n, value in rows])
    with Client() as client:
        client.hello()
        seen = listed(client)["gpus"]
        client.leave()
    assert [each["problem"] for each in seen] == list(ERRORS.values())
    assert all(each["utilisation"] is None for each in seen[1:])


SENSORS: dict[str, dict[str, str]] = {
    "power sensor": {"power__draw": "ERR!"},
    "limit of power": {"power__draw": "[Unknown Error]", "power__limit": "[Unknown Error]"},
    "load within WSL": {"utilization__gpu": "ERR!"},
    "memory of GB10": {"memory__used": "[N/A]", "memory__total": "[N/A]", "power__limit": "[N/A]"},
    "words in a name": {
        "name": "NVIDIA GB10, lost and found",
        "compute_mode": "[Not Supported]",
    },
}


def test_a_sensor_that_fails_alone_makes_no_gpu_unusable(smi: FakeNvidiaSmi) -> None:
    """Given GPUs that compute, and some figure of which is an error, then that is unknown."""
    smi.say(gpu=[gpu(number, **values) for number, values in enumerate(SENSORS.values())])
    with Client() as client:
        client.hello()
        seen = listed(client)["gpus"]
        client.leave()
    for name, each in zip(SENSORS, seen, strict=True):
        assert (each["problem"], each["temperature"]) == ("", 62), name


@variants(
    ("lines", "status", "why"),
    [
        (
            ["Failed to initialize NVML: Driver/library version mismatch"],
            18,
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
        (["Failed to initialize NVML: Unknown Error"], 255, "Failed to initialize NVML: Unknown"),
        (
            [
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                "Make sure that the latest NVIDIA driver is installed and running."
            ],
            9,
            "NVIDIA-SMI has failed because",
        ),
        ([], 139, "nvidia-smi ends with status 139 and prints nothing"),
        ([], 0, "nvidia-smi is gone, or prints nothing"),
    ],
    ids=["updated driver", "cgroup of a container", "unloaded driver", "crash", "nothing"],
    test=1,
)
def test_an_nvidia_smi_that_fails_as_a_whole_says_nothing_of_a_gpu(
    smi: FakeNvidiaSmi, lines: list[str], status: int, why: str
) -> None:
    """Given a driver that was updated while programs go on computing, then their GPUs are told
    without figures, and are not called lost."""
    smi.say(gpu=[gpu(0), gpu(1)], apps=[])
    with Client() as client:
        client.hello()
        listed(client)
        smi.say(gpu=lines, status=status)
        said = listed(client)
        client.leave()
    assert [seen["problem"] for seen in said["gpus"]] == ["", ""]
    assert not any("utilisation" in seen for seen in said["gpus"])
    assert said["why"].startswith(why)


def test_a_sentence_about_one_gpu_says_nothing_of_the_others(smi: FakeNvidiaSmi) -> None:
    """Given an nvidia-smi that gives up at a GPU that is lost, then that one is, and no other."""
    lost = "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"
    smi.say(gpu=[gpu(0), gpu(1)], apps=[])
    with Client() as client:
        client.hello()
        listed(client)
        smi.say(gpu=[lost], status=15)
        first, second = listed(client)["gpus"]
        client.leave()
    assert (first["problem"], second["problem"]) == ("", lost)


def test_the_only_gpu_that_is_lost_is_called_so(smi: FakeNvidiaSmi) -> None:
    """Given one GPU, when nvidia-smi finds none any more, then that GPU is lost."""
    smi.say(gpu=[gpu(0)], apps=[])
    with Client() as client:
        client.hello()
        listed(client)
        smi.say(gpu=["No devices were found"], status=6)
        (seen,) = listed(client)["gpus"]
        client.leave()
    assert seen["problem"] == "nvidia-smi no longer lists it"


def test_a_warning_after_the_rows_makes_no_gpu_unusable(smi: FakeNvidiaSmi) -> None:
    """Given a GPU whose own memory of its settings is damaged, then it is told, and usable."""
    warning = "WARNING: infoROM is corrupted at gpu 0000:06:00.0"
    smi.say(gpu=[gpu(0), warning], status=14, apps=[])
    with Client() as client:
        client.hello()
        said = listed(client)
        client.leave()
    assert [(seen["problem"], seen["utilisation"]) for seen in said["gpus"]] == [("", 1.0)]
    assert said["why"] == warning


@variants(
    "sentence",
    [
        "Unable to determine the device handle for GPU 0000:07:00.0: GPU is lost.  Reboot the "
        "system to recover this GPU",
        "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error",
        "Unable to determine the device handle for GPU1: 0000:07:00.0: Unknown Error",
        "Unable to determine the device handle for GPU1: Unknown Error",
        "",
    ],
    test=1,
)
def test_a_gpu_that_is_lost_stays_named(smi: FakeNvidiaSmi, sentence: str) -> None:
    """Given two GPUs of which one falls off the bus, then it is told with what is said of it."""
    smi.say(gpu=[gpu(0), gpu(1)], apps=[])
    with Client() as client:
        client.hello()
        listed(client)
        smi.say(gpu=[*([sentence] if sentence else []), gpu(0)], status=15 if sentence else 0)
        first, second = listed(client)["gpus"]
        client.leave()
    assert (first["problem"], second["uuid"]) == ("", OTHER)
    assert second["problem"] == (sentence or "nvidia-smi no longer lists it")
    assert "utilisation" not in second


@pytest.mark.parametrize(
    ("field", "figure"),
    [
        ("power.limit", "power_limit"),
        ("mig.mode.current", None),
        ("ecc.errors.uncorrected.volatile.total", "ecc_errors"),
    ],
)
def test_a_field_that_a_driver_does_not_know_costs_that_field_alone(
    smi: FakeNvidiaSmi, field: str, figure: str | None
) -> None:
    """Given an older driver, then all else is told, and it is not asked for that field again."""
    smi.say(gpu=[gpu(0)], unknown=[field])
    with Client() as client:
        client.hello()
        (seen,) = listed(client)["gpus"]
        listed(client)
        client.leave()
    assert seen["utilisation"] == 1.0
    assert figure is None or seen[figure] is None
    assert sum(field in " ".join(words) for words in smi.asked) == 1


def test_a_field_that_was_renamed_is_asked_for_by_its_new_name(smi: FakeNvidiaSmi) -> None:
    """Given a driver that knows `clocks_event_reasons.active`, then that is its throttle."""
    old, new = "clocks_throttle_reasons.active", "clocks_event_reasons.active"
    smi.say(gpu=[{**gpu(0), new: "0x0000000000000008"}], unknown=[old])
    with Client() as client:
        client.hello()
        (seen,) = listed(client)["gpus"]
        client.leave()
    assert seen["throttled"] == ["hardware"]


def test_processes_belong_to_tasks_to_others_or_to_another_container(smi: FakeNvidiaSmi) -> None:
    """Given a task, a stranger, a process of another container and one that has ended, then the
    first three are told, the task's first, and each by what is known of it."""
    stranger = subprocess.Popen([sys.executable, "-c", "input()", "far off"], stdin=-1)
    try:
        with Client() as client:
            client.hello()
            pid = client.start("w:0", ["sleep", "1000"])["pid"]
            rows = [
                app(0, stranger.pid, "9000"),
                app(0, pid, "1222"),
                app(0, 4194000, "902", "[Not Found]"),
                app(0, 4194001, "902", "/usr/bin/gone"),
                app(1, pid, "[N/A]"),
            ]
            smi.say(gpu=[gpu(0), gpu(1)], apps=rows)
            first, second = sampled(client)["gpus"]
            client.kill()
            client.leave()
    finally:
        stranger.kill()
        stranger.communicate()
    task, other, elsewhere = first["processes"]
    assert (task["task"], task["pid"], task["memory"]) == ("w:0", pid, 1222 * MIB)
    assert "task" not in other and other["pid"] == stranger.pid
    assert other["user"] == "root" and other["command"].endswith("input() far off")
    assert (elsewhere["elsewhere"], other["elsewhere"]) == (True, False)
    assert [(one["task"], one["memory"]) for one in second["processes"]] == [("w:0", None)]


LISTING = f"""\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-1111-2222-3333-444444444444)
  MIG 2g.20gb     Device  0: (UUID: MIG-aaaa-0)
  MIG 1g.10gb     Device  1: (UUID: MIG-GPU-0000/1/0)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: {OTHER})
"""
OLD_TABLE = """\
+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
+------------------+----------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|
|==================+======================+===========+=======================|
|  0    3   0   0  |  14366MiB / 19968MiB | 28      0 |  2   0    1    0    0 |
|                  |      4MiB / 32767MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+
|  0    5   0   1  |     13MiB /  9856MiB | 14      0 |  1   0    0    0    0 |
+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |
|        ID   ID                                                   Usage      |
|=============================================================================|
|    0    3    0    PID      C   python train.py                 14195MiB |
|    0    5    0    4194000  C   [Not Found]                           N/A |
+-----------------------------------------------------------------------------+
"""
NEW_TABLE = """\
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:10:1C.0 Off |                   On |
| N/A   40C    P0             43W /  400W |     249MiB /  40960MiB |     N/A      Default |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|==================+==================================+===========+=======================|
|  0    3   0   0  |           14366MiB / 19968MiB    | 28      0 |  2   0    1    0    0 |
|                  |               0MiB / 12211MiB    |           |                       |
|  0    5   0   1  |              13MiB /  9856MiB    | 14      0 |  1   0    0    0    0 |
|    0    3    0              PID      C   python train.py                       14195MiB |
|    0    5    0          4194000      C   [Not Found]                                N/A |
"""


@variants("table", [OLD_TABLE, NEW_TABLE], ids=["450 to 525", "from 550 on"], test=1)
def test_mig_instances_are_told_with_their_memory_and_processes(
    smi: FakeNvidiaSmi, table: str
) -> None:
    """Given a GPU that is divided, then its instances and who is on each are read from the table,
    and `nvidia-smi -L` is asked for their ids only when there are others."""
    divided = gpu(0, mig__mode__current="Enabled", utilization__gpu="[N/A]")
    with Client() as client:
        client.hello()
        pid = client.start("w:0", ["sleep", "1000"])["pid"]
        rows = table.replace("    PID  ", f"    {pid}  ")
        smi.say(gpu=[divided, gpu(1)], listed=LISTING, table=rows, apps=[app(0, pid, "[N/A]")])
        first, second = listed(client)["gpus"]
        listed(client)
        asked = smi.asked.count(["-L"])
        smi.say(table=rows.replace("|  0    5   0   1", "|  0    5   0   2"))
        fewer = listed(client)["gpus"][0]["instances"]
        client.kill()
        client.leave()
    big, small = first["instances"]
    assert (big["name"], big["uuid"]) == ("2g.20gb", "MIG-aaaa-0")
    assert (big["memory_used"], big["memory_total"]) == (14366 * MIB, 19968 * MIB)
    assert (small["uuid"], small["memory_total"]) == ("MIG-GPU-0000/1/0", 9856 * MIB)
    task, other = first["processes"]
    assert (task["task"], task["memory"], task["instance"]) == ("w:0", 14195 * MIB, "MIG-aaaa-0")
    assert (other["elsewhere"], other["instance"]) == (True, "MIG-GPU-0000/1/0")
    assert second.get("instances", []) == []
    assert asked == 1 and smi.asked.count(["-L"]) == 2
    assert [one["memory_total"] for one in fewer] == [19968 * MIB, None]


def test_processes_that_are_told_by_the_id_of_an_instance_are_on_its_gpu(
    smi: FakeNvidiaSmi,
) -> None:
    """Given a driver whose list of processes names MIG instances in place of GPUs, and a table that
    names none, then they are on that instance."""
    row = {**app(0, 4194000, "902", "[Not Found]"), "gpu_uuid": "MIG-aaaa-0"}
    smi.say(gpu=[gpu(0, mig__mode__current="Enabled")], listed=LISTING, apps=[row])
    with Client() as client:
        client.hello()
        (seen,) = listed(client)["gpus"]
        client.leave()
    assert [(one["pid"], one["instance"]) for one in seen["processes"]] == [(4194000, "MIG-aaaa-0")]


@pytest.mark.prove
def test_forty_thousand_lines_are_bounded(smi: FakeNvidiaSmi) -> None:
    """Given an output without an end, then what is told of it is short, and the agent goes on."""
    rows = [gpu(number) for number in range(40_000)]
    rows[0]["mig.mode.current"] = "Enabled"
    long = "|   0   1   0   1   C " + " " * 900_000
    smi.say(
        gpu=["\x1b]0;owned\x07" * 1000, *rows],
        apps=[app(0, 1)] * 40_000,
        table=long,
        listed="MIG 1g.10gb " + "Device 0: " * 90_000,
    )
    with Client() as client:
        client.hello()
        said = listed(client)
        client.leave()
    assert 1 <= len(said["gpus"]) <= wire.MOST_GPUS
    assert all(len(one["processes"]) <= wire.MOST_GPU_PROCESSES for one in said["gpus"])
    assert len(said["why"]) <= 200


def test_an_nvidia_smi_that_hangs_leaves_no_old_figures(smi: FakeNvidiaSmi) -> None:
    """Given a driver that hangs, then questions are answered at once, one `nvidia-smi` waits, and
    the GPUs are told without figures that are no longer true."""
    smi.say(gpu=[gpu(0)])
    with Client() as client:
        client.hello()
        assert sampled(client)["gpus"][0]["utilisation"] == 1.0
        smi.say(seconds=3000)
        before = len(smi.asked)
        said: list[dict[str, Any]] = []

        def late() -> bool:
            said.append(client.ask(wire.STATS, {}))
            return "has not answered" in said[-1]["gpu_problem"]

        wait_until(late, "the silence is told", 45)
        (seen,) = said[-1]["gpus"]
        assert seen["name"] == "NVIDIA H200" and "utilisation" not in seen
        assert len(smi.asked) == before + 1
        client.leave()
        wait_until(lambda: not family(client.run_id), "it ends with the agent")


def test_a_host_without_gpus_is_asked_once(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given no `nvidia-smi`, when the agent is asked again and again, then it looks once for it:
    one that is installed meanwhile is not run at once."""
    program = tmp_path / "bin" / "nvidia-smi"
    hidden = program.rename(tmp_path / "hidden")
    with Client() as client:
        client.hello()
        for _ in range(10):
            assert client.ask(wire.STATS, {})["gpus"] == []
        hidden.rename(program)
        for _ in range(40):
            assert client.ask(wire.STATS, {})["gpus"] == []
        client.leave()
    assert smi.asked == []


SCHEMA = json.loads((REPOSITORY / "docs/schemas/event.schema.json").read_text())
RAISES = """
import os, sys, time
while not os.path.exists(sys.argv[1]) or sys.argv[3] != sys.argv[4]:
    time.sleep(0.02)
raise RuntimeError(sys.argv[2])
"""
"""A task that fails alone: of two, a busy machine decides whose failure the launcher hears of."""


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no run's."""
    argv = [sys.executable, "-c", "input()", "sweep.py"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def two_workers(folder: Path, *command: str, gpus: int | None = None) -> str:
    """A cluster file of two tasks here, and the number of GPUs where it says one."""
    text = cluster_text(
        {"worker": 2},
        command=command,
        workdir="",
        grace=1,
        start={"ready": {"worker": "started"}},
    )
    if gpus is not None:
        text += f"\n[hosts.localhost]\ngpus = {gpus}\n"
    return str(write(folder, text))


def raising(index: int, go: Path, error: str) -> list[str]:
    """The command of tasks of which one raises an error as soon as a file is there."""
    return [*python_task(RAISES), str(go), error, "{index}", str(index)]


def has_task(event: dict[str, Any]) -> bool:
    return event["event"] == "gpus" and bool(event["tasks"])


def pid_of(up: Up, task: str) -> int:
    said = up.wait_for(lambda e: e["event"] == "task" and e["task"] == task and "pid" in e, task)
    return int(said["pid"])


def test_gpus_are_in_events_in_ps_and_in_the_file_of_metrics(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given two GPUs, of which a task holds one and a stranger too, then the load comes every five
    seconds with the memory of tasks, and `ps` names the processes."""
    smi.say(gpu=[gpu(0, utilization__gpu="42"), gpu(1)])
    with Up("up", two_workers(tmp_path, "sleep", "1000"), "--json") as up:
        pid = pid_of(up, "worker:0")
        smi.say(apps=[app(0, stranger.pid, "9000"), app(0, pid, "1222"), app(1, pid, "100")])
        held = up.wait_for(has_task, "the load")
        assert held["tasks"] == {"worker:0": 1322 * MIB}
        first, second = held["gpus"]
        assert (first["index"], first["utilisation"], first["temperature"]) == (0, 0.42, 62)
        assert second["memory_used"] == 4390 * MIB
        jsonschema.validate(held, SCHEMA)
        listed: list[Any] = []

        def told() -> bool:
            seen = json.loads(run("ps", "--json").stdout)
            (host,) = next(one["hosts"] for one in seen if one["run"] == up.run_id)
            listed[:] = host["gpus"]
            return bool(listed and listed[0]["processes"])

        up.wait_for(has_task, "the next load, after which ps knows", after=held)
        wait_until(told, "ps knows the processes", 90)
        task, other = listed[0]["processes"]
        assert (task["task"], task["pid"], task["memory"]) == ("worker:0", pid, 1222 * MIB)
        assert other["pid"] == stranger.pid and other["command"].endswith("sweep.py")
        assert other["user"] == "root" and other.get("task") is None
        tasks = {e["task"]: e.get("gpus") for e in up.of("task")}
        assert tasks == {"worker:0": ["0"], "worker:1": ["1"]}
        metrics = RunFolder(runs_home() / up.run_id).metrics.read_text().splitlines()
        assert held in list(map(json.loads, metrics))


def test_a_full_gpu_names_who_holds_it(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given a GPU that a stranger holds, when a task finds no memory there, then the cause names
    the stranger's user, pid, command and size."""
    go = tmp_path / "go"
    error = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB"
    smi.say(gpu=[gpu(0), gpu(1)], apps=[app(0, stranger.pid, "120000")])
    with Up("up", two_workers(tmp_path, *raising(0, go, error)), "--json") as up:
        pid_of(up, "worker:0")
        up.wait_for(lambda e: e["event"] == "gpus", "the load")
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["tasks"]) == ("raised", ["worker:0"]), verdict
    held = f"GPU 0 is held by root's pid {stranger.pid} ({sys.executable} -c input() sweep.py), 126"
    assert held in verdict["text"], verdict
    assert held in up.said


@pytest.mark.prove
def test_a_full_gpu_names_the_task_that_shares_it(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given two tasks on one GPU, when one finds no memory there, in JAX's words, then the cause
    names the other one and what it holds."""
    go = tmp_path / "go"
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."
    smi.say(gpu=[gpu(0)])
    with Up("up", two_workers(tmp_path, *raising(0, go, error)), "--json") as up:
        smi.say(apps=[app(0, pid_of(up, "worker:0")), app(0, pid_of(up, "worker:1"), "120000")])
        up.wait_for(has_task, "the load")
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert verdict["tasks"] == ["worker:0"], verdict
    assert "GPU 0 is held by worker:1, 126 GB" in verdict["text"], verdict


@variants("told", ["lost", "xid"], test=1)
def test_a_gpu_that_fails_makes_its_host_guilty(
    smi: FakeNvidiaSmi, tmp_path: Path, told: str
) -> None:
    """Given a GPU that is lost while a task uses it, or whose memory fails, when the task fails,
    then a note says so at once, and the cause is that GPU of that host."""
    go = tmp_path / "go"
    smi.say(gpu=[gpu(0), gpu(1)])
    error = "CUDA error: unspecified launch failure"
    with Up("up", two_workers(tmp_path, *raising(1, go, error)), "--json") as up:
        smi.say(apps=[app(1, pid_of(up, "worker:1"))])
        up.wait_for(has_task, "the load")
        if told == "lost":
            lost = "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"
            smi.say(gpu=[gpu(0), lost], apps=[], status=15)
            fault = f"GPU 1 cannot be used: {lost}"
        else:
            smi.say(gpu=[gpu(0), gpu(1, ecc__errors__uncorrected__volatile__total="1")])
            fault = "GPU 1 has had 1 error of its memory that could not be corrected (ECC)"
        up.wait_for(lambda e: e["event"] == "note" and fault in e["note"], "the fault")
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["tasks"]) == ("gpu", ["worker:1"]), verdict
    assert verdict["text"].startswith(f"localhost: {fault}")


def test_an_nvidia_smi_that_hangs_holds_up_no_run(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given a driver that never answers, then tasks start, and a kill is proven all the same, and
    ends the tasks alone: what the agent asks is no process of the run."""
    smi.say(gpu=[gpu(0)], seconds=3000)
    with Up("up", two_workers(tmp_path, "sleep", "1000", gpus=1), "--json") as up:
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "running", "all tasks")
        wait_until(lambda: smi.asked, "it is asked")
        assert run("kill", up.run_id).returncode == 0
        assert up.wait() == 130, up.transcript()
        receipt = up.of("receipt")[-1]
        assert receipt["clean"] and receipt["hosts"][0]["signalled"] == 2, receipt


def test_check_names_who_holds_a_gpu(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given a GPU that the plan gives away and a stranger holds, then `check` warns of it."""
    smi.say(gpu=[gpu(0), gpu(1)], apps=[app(1, stranger.pid, "120000")])
    done = run("check", two_workers(tmp_path, "sleep", "1"), "--json")
    assert f"GPU 1 is held by root's pid {stranger.pid}" in done.stdout, done.stdout + done.stderr


def test_check_knows_which_gpus_the_host_shows(
    smi: FakeNvidiaSmi,
    tmp_path: Path,
    stranger: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given an environment that shows GPUs 2 and 3 alone, then who holds GPU 1 is no matter of the
    run, and who holds GPU 3 is."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    apps = [app(1, stranger.pid, "110000"), app(3, stranger.pid, "120000")]
    smi.say(gpu=[gpu(index) for index in range(4)], apps=apps)
    done = run("check", two_workers(tmp_path, "sleep", "1"), "--json")
    assert f"GPU 3 is held by root's pid {stranger.pid}" in done.stdout, done.stdout + done.stderr
    assert "GPU 1 is held" not in done.stdout


@pytest.mark.prove
def test_a_launch_says_who_holds_a_gpu_that_it_gives_away(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given a stranger on a GPU that the plan gives away, then a note names it, once, and the tasks
    start all the same; one on another GPU is no matter of the run."""
    apps = [app(1, stranger.pid, "120000"), app(2, stranger.pid, "110000")]
    smi.say(gpu=[gpu(index) for index in range(3)], apps=apps)
    with Up("up", two_workers(tmp_path, "sleep", "1000", gpus=2), "--json") as up:
        held = f"localhost: GPU 1 is held by root's pid {stranger.pid}"
        up.wait_for(lambda e: e["event"] == "note" and held in e["note"], "the note")
        smi.say(apps=[*apps, app(0, pid_of(up, "worker:0"))])
        up.wait_for(has_task, "another look")
        assert sum("is held by" in event["note"] for event in up.of("note")) == 1
        assert "GPU 2 is held" not in up.transcript()


def test_a_gpu_that_fails_in_the_last_moment_is_seen(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given a GPU whose memory fails at the same moment as the task on it, then no report comes any
    more, and the cause is that GPU all the same."""
    go = tmp_path / "go"
    bad = gpu(1, ecc__errors__uncorrected__volatile__total="1")
    smi.say(gpu=[gpu(0), gpu(1)])
    error = "CUDA error: unspecified launch failure"
    with Up("up", two_workers(tmp_path, *raising(1, go, error)), "--json") as up:
        smi.say(apps=[app(1, pid_of(up, "worker:1"))])
        up.wait_for(has_task, "the load")
        newer = up.of("gpus")[-1]["time"]
        up.wait_for(lambda e: e["event"] == "gpus" and e["time"] > newer, "the last report")
        smi.say(gpu=[gpu(0), bad])
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["tasks"]) == ("gpu", ["worker:1"]), verdict
