"""Probes of the agent on a host: connections, listeners, interpreters, leftovers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from launcher.agent import prober, reach
from launcher.agent.folders import Folders, boot_id
from launcher.agent.probes import (
    GpusAnswer,
    ListenAnswer,
    LogdirAnswer,
    LogdirProbe,
    PathAnswer,
    PathProbe,
    PythonProbe,
)
from launcher.cluster import Shell
from launcher.plan.shell import shell_prefix
from tests.patience import wait_until
from tests.ports import free_ports
from tests.testbed import proc

SECONDS = 2.0


@pytest.fixture
def folders(tfmux_home: Path) -> Folders:
    """A run's folders on this machine."""
    made = Folders("check-20261120-183002-7f3a", "here", None, dict(os.environ))
    made.make()
    return made


@pytest.fixture
def listeners() -> Iterator[reach.Listeners]:
    """Probe listeners that say `token`."""
    opened = reach.Listeners(b"token")
    yield opened
    opened.close()


@contextmanager
def process(env: dict[str, str]) -> Iterator[proc.Process]:
    """A process with these variables."""
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, **env})
    try:
        # Only some time after the exec does it show its own arguments.
        while (found := proc.read(child.pid)) is None or found.argv != ("sleep", "1000"):
            pass
        yield found
    finally:
        child.kill()
        child.wait(10)


# --- connections ------------------------------------------------------------------------------


def test_a_listener_is_reached_and_knows_itself(listeners: reach.Listeners) -> None:
    """The connector reads the token: it has reached this host's probe and nothing else."""
    [port] = free_ports(1)
    assert not listeners.open([port]).failed
    for name in ("localhost", "127.0.0.1", "::1"):
        answer = reach.connect(name, port, "token", SECONDS)
        assert answer.outcome == "ok", (name, answer)
    assert reach.connect("127.0.0.1", port, "another", SECONDS).outcome == "stranger"


def test_a_closed_listener_leaves_its_port_free_at_once() -> None:
    """A task must be able to take the port right after the preflight."""
    [port] = free_ports(1)
    opened = reach.Listeners(b"token")
    opened.open([port])
    assert reach.connect("127.0.0.1", port, "token", SECONDS).outcome == "ok"
    opened.close()
    with socket.socket() as server:
        server.bind(("0.0.0.0", port))
        server.listen()
    assert reach.connect("127.0.0.1", port, "token", SECONDS).outcome == "refused"


def test_a_port_that_is_taken_is_said_why(listeners: reach.Listeners) -> None:
    """The other ports are opened all the same."""
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = int(other.getsockname()[1])
        failed = listeners.open([taken, port])
    assert failed == ListenAnswer({str(taken): "Address already in use"}, ())
    assert reach.connect("127.0.0.1", port, "token", SECONDS).outcome == "ok"


def test_a_name_that_nobody_knows_is_unresolved() -> None:
    """The resolver's words go with it."""
    answer = reach.connect("no-such-host.invalid", 2222, "", SECONDS)
    assert answer.outcome == "unresolved" and answer.text and not answer.address


@pytest.mark.large
def test_a_server_that_takes_nobody_is_filtered_until_it_does() -> None:
    """Packets that are dropped are no refusal; one that is taken when repeated is fine."""
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        guests = [socket.socket() for _ in range(3)]
        for guest in guests:
            guest.setblocking(False)
            guest.connect_ex(("127.0.0.1", port))
        assert reach.connect("127.0.0.1", port, "", 0.3).outcome == "filtered"
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(reach.connect("127.0.0.1", port, "", 10.0))
        )
        thread.start()
        while thread.is_alive():
            server.settimeout(0.2)
            try:
                guests.append(server.accept()[0])
            except TimeoutError:
                continue
        for guest in guests:
            guest.close()
    assert answers[0].outcome == "ok"


# --- programs ---------------------------------------------------------------------------------


@pytest.mark.processes
def test_tensorflow_is_found_without_an_import() -> None:
    """Its version comes from the package's metadata, by the interpreter of the tasks."""
    answer = prober.python(PythonProbe(sys.executable, {}, ()))
    assert answer.version == sys.version.split()[0]
    assert answer.tensorflow.startswith("2.") and answer.there


@pytest.mark.processes
def test_setup_decides_which_python_runs(tmp_path: Path) -> None:
    """A `setup` that changes PATH (conda, modules) is followed, whatever it prints."""
    (tmp_path / "python").symlink_to(sys.executable)
    setup = f"echo activated; PATH={tmp_path}:$PATH"
    answer = prober.python(PythonProbe("python", {}, shell_prefix(setup, Shell.NONE)))
    assert answer.executable == str(tmp_path / "python")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "reason"),
    [("/nowhere/python", "No such file"), ("/bin/false", "nothing"), ("/bin/ls", "-c")],
)
def test_an_interpreter_that_is_none_says_why(name: str, reason: str) -> None:
    """A wrong path, a program that fails, another program."""
    assert reason in (prober.python(PythonProbe(name, {}, ())).failed or "")


@pytest.mark.processes
def test_gpus_are_what_nvidia_smi_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of index, name, driver and memory; a driver that fails is quoted."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, Tesla T4, 535.54.03, 15360 MiB'\n")
    program.chmod(0o755)
    assert prober.gpus() == GpusAnswer((("0", "Tesla T4", "535.54.03", "15360 MiB"),))
    program.write_text("#!/bin/sh\necho 'Failed to initialize NVML: mismatch'; exit 18\n")
    assert prober.gpus() == GpusAnswer((), "Failed to initialize NVML: mismatch")
    program.write_text("#!/bin/sh\necho 'No devices were found'\n")
    assert prober.gpus() == GpusAnswer(())


@pytest.mark.processes
def test_a_gpu_that_is_lost_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi prints a sentence for it, before or behind the rows of the others, and fails."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"
    rows = [f"{index}, A100, 535.54.03, 40960 MiB" for index in range(2)]
    lost = "Unable to determine the device handle for GPU 0000:B3:00.0: Unknown Error"
    for lines in ([*rows, lost], [lost, *rows]):
        printed = "".join(f"echo '{line}'\n" for line in lines)
        program.write_text(f"#!/bin/sh\n{printed}exit 14\n")
        program.chmod(0o755)
        answer = prober.gpus()
        assert [gpu[0] for gpu in answer.gpus] == ["0", "1"] and answer.why == lost


# --- folders ----------------------------------------------------------------------------------


def test_a_log_directory_is_written_to_and_left_as_it_was(folders: Folders, tmp_path: Path) -> None:
    """A file is made in the nearest folder that is there, and taken away."""
    answers = prober.Prober(folders)
    (tmp_path / "logs").mkdir()
    path = f"{tmp_path}/logs/a/b"
    answer = answers.answer(LogdirProbe(path, ".mark", keep=False))
    assert answer == LogdirAnswer(path, f"{tmp_path}/logs", 2, "", None)
    assert list((tmp_path / "logs").iterdir()) == []
    answers.answer(LogdirProbe(path, ".mark", keep=True))
    assert answers.answer(PathProbe(f"{tmp_path}/logs/.mark")) == PathAnswer(True)
    answers.close()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_file_in_the_way_of_a_log_directory_is_told(folders: Folders, tmp_path: Path) -> None:
    """Nothing can be made below a file."""
    (tmp_path / "file").touch()
    asked = LogdirProbe(f"{tmp_path}/file/logs", ".mark", keep=False)
    answer = prober.Prober(folders).answer(asked)
    assert isinstance(answer, LogdirAnswer) and answer.why == "Not a directory"


@pytest.mark.parametrize("name", ["checkpoint", "model.ckpt-100.index", "train/ckpt-7.index"])
def test_an_old_checkpoint_is_found(folders: Folders, tmp_path: Path, name: str) -> None:
    """TensorFlow's own names, in the directory or one below; its age is told."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    answer = prober.Prober(folders).answer(LogdirProbe(str(tmp_path), ".mark", keep=False))
    assert isinstance(answer, LogdirAnswer) and answer.old is not None
    path, age = answer.old
    assert path == str(tmp_path / name) and -1 < age < 60


# --- leftovers --------------------------------------------------------------------------------


def test_a_tagged_process_without_an_agent_is_left_over(folders: Folders) -> None:
    """It is named by run, task and pid; while an agent of its run lives it is none."""
    base = os.path.dirname(folders.run)
    run = "old-20261120-183002-1234"
    with process({"TFMUX_TASK": f"{run}/worker:1/2;"}) as left:
        row = (run, "worker:1", left.pid, "sleep 1000")
        # Between the success of `exec` and its end a process has no environment yet.
        wait_until(lambda: row in prober.leftovers(base).found, "it is found")
        with process({"TFMUX_AGENT": f"{run};"}):
            assert not [row for row in prober.leftovers(base).found if row[0] == run]
    assert not [row for row in prober.leftovers(base).found if row[0] == run]


def test_a_daemon_without_a_tag_is_found_in_its_agents_state_file(folders: Folders) -> None:
    """What a dead agent knew is on disk; a pid that was used again is nobody's."""
    base = os.path.dirname(folders.run)
    run = "old-20261120-183002-1234"
    place = Path(base, f"{run}.here")
    place.mkdir()
    with process({}) as daemon:
        row = (run, "ps:0", daemon.pid, "sleep 1000")
        start = int(Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[19])
        for began, found in ((start, True), (start + 1, False)):
            known = [[daemon.pid, began, "ps:0"]]
            body = {"boot": boot_id(), "known_processes": known, "attempts": []}
            (place / "state.json").write_text(json.dumps(body))
            if found:  # what cannot be read at once on a busy machine is left out
                wait_until(lambda: row in prober.leftovers(base).found, "it is found")
            else:
                assert row not in prober.leftovers(base).found
        proc.signal_process(daemon, signal.SIGKILL)
