"""Full disks, disks of one's own, and directories that hosts have already."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.host_tasks import FOLDER, TwoHosts
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.support.ports import free_ports
from tests.support.scenario import FaultScenario, confirmed, last_states, notes, ready
from tests.testbed.namespaces import Testbed

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
    """Given a `log_limit`, when tasks write more, then they go on, their logs here stay within it
    and have the beginning, a mark and the end, and notes say so. A task of this machine has one
    log, which its agent writes."""
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
            log = (folder / f"{task}.log").read_bytes()
            assert 10_000 < len(log) <= 20_000
            assert b"bytes are not kept here: log_limit]\n" in log
            assert log.splitlines()[-1].startswith(b"done "), log[-300:]
        for task in ("worker:0", "worker:1"):
            assert any(f"the log of {task}: it has reached its log_limit" in n for n in notes(up))
            assert any(f"{task}:" in n and "(log_limit)" in n for n in notes(up))
    scenario.wait_dead(up.run_id)


EXAMPLES = REPOSITORY / "docs/examples/tf1"
PROGRAMS = [EXAMPLES / "mnist_async.py", EXAMPLES / "mnist_inference.py"]
FIRST, SECOND = 60, 100
"""Steps of the first training, and of the second one, which begins where the first has ended."""


@pytest.fixture(scope="module")
def two(shared_testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    """Two hosts that have imported TensorFlow once for all tests."""
    logs = tmp_path_factory.mktemp("logs")
    with TwoHosts(shared_testbed["tf1"], shared_testbed["tf2"], logs, *PROGRAMS) as hosts:
        yield hosts


def train(two: TwoHosts, mode: str, steps: str, logdir: str) -> str:
    """Train with a ps on the first host and a chief on the second; return what the chief says."""
    ports = iter(free_ports(3))
    jobs = {"ps": f"tf1:{next(ports)}", "worker": f"tf2:{next(ports)}"}
    if mode == "ps-strategy":
        jobs["chief"] = f"tf2:{next(ports)}"
    words = [*mode.split(), *(f"--{job}_hosts={place}" for job, place in jobs.items())]
    words += [steps, logdir]
    words.append("--task_id=0" if "mnist_async.py" in words else "--task_index=0")
    started = {
        job: two.start(two.ps if job == "ps" else two.workers, *words, f"--job_name={job}")
        for job in jobs
    }
    chief = started.pop([*jobs][-1])
    texts = [chief.wait(), chief.text, *(task.text for task in started.values())]
    assert texts[0] == 0, texts
    two.end([*started.values()])
    return chief.text


@pytest.mark.parametrize(
    "mode",
    [
        "async",
        "classic",
        *(
            pytest.param(mode, marks=pytest.mark.soak)
            for mode in (
                "async --fetch-every=4 --push-every=4",
                "sync",
                "in-graph",
                "ps-strategy",
                "classic --sync",
            )
        ),
    ],
)
def test_a_mode_saves_where_the_chief_is(two: TwoHosts, mode: str) -> None:
    """The ps's disk stays empty; the second training makes the steps that are missing."""
    place = f"{FOLDER}/logs/{re.sub('[^a-z]', '', mode)}"
    train(two, mode, f"--steps={FIRST}", f"--logdir={place}")
    assert {"checkpoint", f"model.ckpt-{FIRST}.index"} <= two.workers.files(place)
    again = train(two, mode, f"--steps={SECOND}", f"--logdir={place}")
    if not mode.startswith("classic"):
        assert f"restored step {FIRST} from {place}/model.ckpt-{FIRST}" in again
    done = re.search(r"Done: (\d+) training steps", again)
    assert done is not None and int(done[1]) < FIRST, again
    assert f"model.ckpt-{SECOND}.index" in two.workers.files(place)
    assert not two.ps.files(place)


@pytest.mark.parametrize(
    ("place", "sync"),
    [
        ("logs-here", ""),
        pytest.param(f"{FOLDER}/logs/elsewhere", " --sync", marks=pytest.mark.soak),
    ],
)
def test_a_program_of_tensorflow_1_saves_where_the_chief_is(
    two: TwoHosts, place: str, sync: str
) -> None:
    """`MonitoredTrainingSession(checkpoint_dir=…)` as it stands, relative and absolute: its first
    line of the second training is of steps behind the first one's."""
    folder = f"{FOLDER}/{place}" if place[0] != "/" else place
    mode = f"tf1 mnist_async.py{sync}"
    train(two, mode, f"--training_steps={FIRST}", f"--log_dir={place}")
    assert {"checkpoint", f"model.ckpt-{FIRST}.index"} <= two.workers.files(folder)
    again = train(two, mode, f"--training_steps={SECOND}", f"--log_dir={place}")
    first = re.search(r"After 20 training steps \((\d+) global steps\)", again)
    assert first is not None and int(first[1]) > FIRST, again
    assert not two.ps.files(folder)


def on_hosts(testbed: Testbed, directory: str, *, command: list[str], more: str = "") -> str:
    """A task on each of two hosts."""
    return cluster_text(
        {"worker": {"tasks": "tf1 tf2", "ready": "started"}},
        "placed",
        testbed.hosts_toml(),
        command=command,
        directory=directory,
        success="all",
        more=more,
    )


def test_tasks_start_where_the_code_is(testbed: Testbed, tmp_path: Path) -> None:
    """Given a project in the home of each host, when a run with `directory` ends, then each task
    has found its own host's files, nothing was copied, and all that is there has stayed."""
    for host in (testbed["tf1"], testbed["tf2"]):
        host.write(f"{host.account.home}/proj/train.sh", f"#!/bin/sh\necho {host.name}\n", 0o755)
    (tmp_path / "unwanted").write_text("x")
    script = "./train.sh; pwd; echo saved > model; echo {workdir}"
    text = on_hosts(testbed, "~/proj", command=["sh", "-c", script])
    file = write(tmp_path, text)
    checked = run("check", str(file))
    assert checked.returncode == 0, checked.stdout
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        for index, name in enumerate(("tf1", "tf2")):
            home = testbed[name].account.home
            assert up.log(f"worker:{index}", name)
            said = [e["text"] for e in up.of("log") if e["task"] == f"worker:{index}"]
            assert said.count(f"{home}/proj") == 2
            kept = testbed[name].run(["ls", f"{home}/proj"]).stdout.split()
            assert kept == [b"model", b"train.sh"]


@pytest.mark.prove
def test_what_is_in_the_way_is_told_by_check_and_launch(testbed: Testbed, tmp_path: Path) -> None:
    """Given a directory that is missing on one host and a file on the other, or that the account
    cannot enter, when `check` and `up` are called, then both end with 3 and say the same of each
    host, and nothing is started."""
    two = testbed["tf2"]
    home = two.account.home
    two.write(f"{home}/proj", "a file")
    file = write(tmp_path, on_hosts(testbed, "~/proj", command=["./train.sh"]))
    done = run("check", str(file))
    said = " ".join(done.stdout.split())
    missing = f"worker:0 cannot run on tf1: {testbed['tf1'].account.home}/proj: no such directory"
    no_folder = f"worker:1 cannot run on tf2: {home}/proj is not a directory"
    assert done.returncode == 3 and missing in said and no_folder in said, done.stdout
    assert done.stdout.count("[directory-missing]") == 2
    assert "[command-missing]" not in done.stdout and "[python-broken]" not in done.stdout
    with Up("up", str(file), "--headless") as up:
        assert up.wait() == 3
    said = " ".join(up.said.split())
    assert missing in said and no_folder in said and "nothing was started" in said, up.said


@pytest.mark.prove
def test_a_directory_of_a_job(testbed: Testbed, tmp_path: Path) -> None:
    """Given a job with a directory of its own beside one that gets the copy of the workdir, when
    the run ends, then each has started in its own place; a host with the first job alone gets no
    copy."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/copied").touch()
    one = testbed["tf1"]
    one.run(["mkdir", "-p", "/tmp/have"])
    one.write("/tmp/have/there", "")
    text = cluster_text(
        {
            "chief": {"tasks": "tf2", "command": ["ls"]},
            "worker": {"tasks": "tf1", "command": ["ls"], "directory": "/tmp/have"},
        },
        hosts=testbed.hosts_toml(),
        workdir="work",
        success="all",
        start={"ready": {"chief": "started", "worker": "started"}},
    )
    file = write(tmp_path, text)
    copies = json.loads(run("plan", str(file), "--json").stdout)["files"]
    assert [each["host"] for each in copies] == ["tf2"]
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("chief:0", "copied") and up.log("worker:0", "there")


@pytest.mark.prove
def test_run_takes_a_directory(testbed: Testbed, tmp_path: Path, tfmux_home: Path) -> None:
    """Given `tfmux run --directory`, when it runs on a host, then its task starts there; with
    `--workdir`, or a path that is not whole, it is 2, and stderr says what to write."""
    testbed.give_access(tfmux_home)
    testbed["tf1"].run(["mkdir", "-p", "/tmp/have"])
    words = ["--directory", "/tmp/have", "-H", "tf1", "--json", "--", "pwd"]
    with Up("run", *words, cwd=tmp_path) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", "/tmp/have")
    for more, said in (
        (["--directory", "/x", "--workdir", "."], "exclude each other"),
        (["--directory", "proj"], 'write the whole path on the hosts, such as "~/proj"'),
        (["--directory", "$HOME/x"], "no shell reads it"),
    ):
        with Up("run", *more, "-H", "tf1", "--headless", "--", "true", cwd=tmp_path) as up:
            assert up.wait() == 2 and said in up.said, up.said


@variants("command", ["up", "check"], test=1)
def test_a_directory_of_this_machine(command: str, tmp_path: Path, tfmux_home: Path) -> None:
    """Given tasks here and `directory`, when it is there, then they start in it; when not, it is 3,
    with the path."""
    text = cluster_text({"worker": 1}, command=["pwd"], directory="~/proj/{job}")
    file = write(tmp_path, text)
    words = [command, str(file), *(["--headless"] if command == "up" else [])]
    done = run(*words)
    assert done.returncode == 3, done.stdout
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{tfmux_home}/proj/worker: no such directory" in said
    (tfmux_home / "proj/worker").mkdir(parents=True)
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert command == "check" or f"{tfmux_home}/proj/worker" in done.stdout


FILLS = """
import os, sys
role = os.environ["ROLE"]
try:
    if role == "inodes":
        for number in range(1000):
            open(f"{os.environ['TMPDIR']}/{number}", "x").close()
    place = {"logdir": os.environ["LOGDIR"], "temporary": os.environ["TMPDIR"], "works": "."}[role]
    with open(place + "/checkpoint", "wb", buffering=0) as file:
        while role != "works":
            file.write(bytes(1 << 16))
    sys.exit(4)
except OSError as error:
    print("cannot save:", error.errno)
    sys.exit(3)
"""


@pytest.fixture
def small_places(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Small file systems, and one of few inodes, each for a task."""
    options = {"logdir": "size=300k", "temporary": "size=300k", "inodes": "size=4m,nr_inodes=20"}
    places = {name: tmp_path / name for name in options}
    mounted = []
    try:
        for name, place in places.items():
            place.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", options[name], "small", str(place)]
            subprocess.run(words, check=True)
            mounted.append(place)
        yield places
    finally:
        for place in mounted:
            subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_is_named_with_the_failure(
    tmp_path: Path, small_places: dict[str, Path]
) -> None:
    """Given tasks whose log directory or temporary directory gets full, or has no inode left, when
    they fail, then their records say which disk and how it is full, by what the kernel says and
    whatever they have printed, and one note names each disk, however many tasks fail of it."""
    (tmp_path / "work").mkdir()
    jobs = "".join(
        f'[jobs.{role}]\ntasks = ["localhost:auto"]\n'
        f'env = {{ ROLE = "{role}", LOGDIR = "{logdir}", TMPDIR = "{temporary}" }}\n'
        for role, logdir, temporary in (
            ("logdir", "{logdir}", tmp_path),
            ("temporary", tmp_path, small_places["temporary"]),
            ("inodes", tmp_path, small_places["inodes"]),
            ("works", tmp_path, tmp_path),
        )
    )
    text = (
        f'name = "full"\n{jobs}[run]\ncommand = {json.dumps([*python_task(FILLS)])}\n'
        f'workdir = "work"\nlogdir = "{small_places["logdir"]}"\nframework = "none"\n'
        'on_failure = "keep"\nsuccess = "all"\n'
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    last = {event["task"]: event for event in up.of("task")}
    found = {name: " ".join(last[f"{name}:0"].get("full_disks", ())) for name in small_places}
    for name, place in small_places.items():
        assert str(place) in found[name], (found, last)
        assert ("inodes" in found[name]) == (name == "inodes")
        (said,) = [note for note in notes(up) if str(place) in note]
        assert " failed on localhost while a disk there was full: " in said
        # All use the log directory: the first that fails while it is full is named with it.
        assert name == "logdir" or said.startswith(f"{name}:0 failed")
    assert last["works:0"]["exit_code"] == 4
    others = " ".join((*found.values(), *last["works:0"].get("full_disks", ())))
    assert others.count(str(small_places["temporary"])) == 1
    assert others.count(str(small_places["inodes"])) == 1
