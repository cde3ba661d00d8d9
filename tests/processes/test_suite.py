"""The suite itself: forked processes, the guard of what is left, interruptions, unstable tests, and
make."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.forked import ForkServer, Process
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.recorded import GOOD, record
from tests.testbed import guard, proc, sweeper

SHOWS = """\
import atexit, json, os, signal, sys, threading

read = lambda name: open(f"/proc/self/{name}", "rb").read().decode().rstrip(chr(0)).split(chr(0))
atexit.register(print, "at exit")
print(json.dumps({
    "argv": read("cmdline"), "environ": sorted(read("environ")), "variables": sorted(os.environ),
    "words": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "path": sys.path,
    "session": os.getsid(0) == os.getpid(), "main": sys.modules["__main__"].__name__,
    "open": sorted(int(n) for n in os.listdir("/proc/self/fd")), "nice": os.nice(0),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "threads": threading.active_count(),
}), flush=True)
print("an error", file=sys.stderr)
if "wait" in sys.argv:
    sys.stdout.flush()
    signal.pause()
sys.exit(7)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A server with a module that the processes do not import."""
    server = ForkServer("argparse")
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module that prints what it is run with."""
    (tmp_path / "shows.py").write_text(SHOWS)
    return tmp_path


def started(
    server: ForkServer, folder: Path, *words: str, new: bool = False
) -> Process | subprocess.Popen[bytes]:
    """Starts the module; its output goes to a file `out`."""
    argv = [sys.executable, "-m", "shows", *words]
    with (folder / "out").open("wb") as out:
        number = out.fileno()
        return server.start(
            argv,
            env={**os.environ, "COLOUR": "grün", "HOME": "/nowhere"},
            cwd=folder,
            stdout=number,
            stderr=number,
            start_new_session=new,
            niceness=3 if new else 0,
        )


def shown(folder: Path) -> dict[str, Any]:
    """What the module has printed."""
    line = next(line for line in (folder / "out").read_text().splitlines() if line[0] == "{")
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_it_is_as_one_that_was_started(server: ForkServer, folder: Path) -> None:
    """Arguments, environment, folder, import path, signals, output, exit handlers and status."""
    process = started(server, folder, "a b", "ü")
    assert isinstance(process, Process)
    assert process.wait(PATIENCE) == 7 == process.poll()
    forked, text = shown(folder), (folder / "out").read_text()
    env = {**os.environ, "COLOUR": "grün", "HOME": "/nowhere"}
    argv = [sys.executable, "-m", "shows", "a b", "ü"]
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True)
    (folder / "out").write_text(done.stdout)
    real = shown(folder)
    assert done.returncode == 7 and text.count("an error") == text.count("at exit") == 1
    assert len(forked.pop("open")) <= len(real.pop("open")) + 1  # the connection to the server
    assert forked == real


def test_its_session_and_niceness_are_what_was_asked_for(server: ForkServer, folder: Path) -> None:
    """A launcher process has a session of its own, a training a lower priority."""
    assert started(server, folder, new=True).wait(PATIENCE) == 7
    assert shown(folder)["session"] is True and shown(folder)["nice"] == os.nice(0) + 3


def test_its_end_is_seen(server: ForkServer, folder: Path) -> None:
    """One that waits is running; a signal ends it, and a second one is no error."""
    process = started(server, folder, "wait")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    process.terminate()


def test_other_variables_of_an_interpreter_are_not_served(server: ForkServer, folder: Path) -> None:
    """Who has them starts an interpreter, and so does who has too much of them."""
    argv = [sys.executable, "-m", "shows"]
    assert server.serves(argv, {**os.environ, "HOME": "/nowhere"})
    for name in ("PYTHONPATH", "LC_ALL", "TZ", "LD_PRELOAD"):
        assert not server.serves(argv, {**os.environ, name: "another"})
    assert not server.serves(argv, {**os.environ, "LONG": "x" * 20_000})
    assert not server.serves([*argv, "x" * 20_000], os.environ)
    process = started(server, folder, "x" * 20_000, new=True)
    assert isinstance(process, subprocess.Popen) and process.wait(PATIENCE) == 7
    assert shown(folder)["words"] == ["x" * 20_000]
    assert shown(folder)["session"] is True and shown(folder)["nice"] == os.nice(0) + 3


def test_several_threads_wait_for_one(server: ForkServer, folder: Path) -> None:
    """Each gets the status, which comes once."""
    process = started(server, folder, "wait")
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(process.wait, *limit) for limit in [(), (PATIENCE,)] * 4]
        process.kill()
        assert [each.result() for each in found] == [-signal.SIGKILL] * 8


def test_a_recorded_run_is_made_once_and_each_reader_has_its_own_copy(tmp_path: Path) -> None:
    """Given one that cannot be made, then each reader is told why."""
    first = record(tmp_path, GOOD)
    (first.folder / "events.jsonl").unlink()
    second = record(tmp_path, GOOD)
    assert second == first and second.code == 0
    assert (second.folder / "events.jsonl").read_bytes()
    for _ in range(2):
        with pytest.raises(AssertionError, match="not recorded"):
            record(tmp_path, "no cluster file")


def test_each_launch_is_counted_with_its_test(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of the server, and an interpreter where it cannot be one."""
    file = folder / "launches"
    monkeypatch.setattr(forked, "counter", os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    server = ForkServer("argparse")
    for words in ("short", "x" * 20_000):
        assert started(server, folder, words).wait(PATIENCE) == 7
    server.close()
    os.close(forked.counter)
    name = "tests/processes/test_suite.py::test_each_launch_is_counted_with_its_test"
    assert file.read_text() == f"shows\t{name}\n" * 2


_LEAKY = """
import subprocess

from tests.testbed import guard

guard.SETTLE = 1.0

def test_leaky():
    child = subprocess.Popen(
        ["sleep", "1000"], env={**__import__("os").environ, "TFMUX_TASK": "r/worker:0/1;"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,  # whoever reads this session's output sees its end
        stderr=subprocess.DEVNULL,
    )
    print("LEAK", child.pid, flush=True)
"""


@pytest.fixture
def bystander() -> Iterator[proc.Process]:
    """A tagged process of somebody else's run: without this session's mark."""
    environ = {name: value for name, value in os.environ.items() if name != guard.MARK}
    with subprocess.Popen(["sleep", "1000"], env={**environ, "TFMUX_TASK": "s/ps:0/1;"}) as child:
        # Only after the exec does it show its own environment.
        while (found := proc.read(child.pid)) is None or found.argv != ("sleep", "1000"):
            pass
        yield found
        child.kill()


@pytest.mark.prove
def test_leak_fails_the_test_and_is_killed(tmp_path: Path, bystander: proc.Process) -> None:
    """A test that leaves a tagged process fails by name; a foreign run is not touched."""
    (tmp_path / "test_leaky.py").write_text(_LEAKY)
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-s", "-q"]
    argv += [
        "-c",
        str(REPOSITORY / "pyproject.toml"),
        f"--rootdir={tmp_path}",
        f"--confcutdir={tmp_path}",
    ]
    done = subprocess.run(
        [*argv, str(tmp_path / "test_leaky.py")], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "left processes behind" in done.stdout
    assert "r/worker:0/1;" in done.stdout
    pid = int(done.stdout.split("LEAK ")[1].split()[0])
    found = proc.read(pid)
    assert found is None or proc.wait_gone(found)  # a busy machine takes a moment to end it
    spared = proc.read(bystander.pid)
    assert spared == bystander and spared is not None and spared.alive


@pytest.mark.prove
@pytest.mark.soak
def test_what_was_there_before_and_what_ends_by_itself_is_no_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes of an earlier moment are passed over, and those that end in time."""
    environ = {**os.environ, "TFMUX_AGENT": "r"}
    with subprocess.Popen(["sleep", "1000"], env=environ) as child:
        while not any(process.pid == child.pid for process in guard.tagged_here()):
            pass
        began = proc.next_tick()
        with subprocess.Popen(["sleep", "0.5"], env=environ):
            assert guard.leaks(guard.tagged_here, began) == []
        assert child.poll() is None
        monkeypatch.setattr(guard, "SETTLE", 1.0)
        (leak,) = [each for each in guard.leaks(guard.tagged_here) if each.pid == child.pid]
        assert leak.tag == "r"
        assert child.wait() == -signal.SIGKILL


_RUNS = '''
import os, signal, subprocess, sys
from pathlib import Path

from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.scenario import ready

TRAINS = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('trains', flush=True)
time.sleep(1000)
"""

def test_waits(tmp_path):
    text = one_task(TRAINS, ready={"log": "trains"})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        ready(up, "worker:0")
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(os.environ["SAID"]).write_text(os.environ["TFMUX_TEST_SUITE"] + " ")
        up.wait()
'''

_HOSTS = """
import os, time
from pathlib import Path

def test_waits(testbed):
    told = f"{os.environ['TFMUX_TEST_SUITE']} {testbed.directory}"
    Path(os.environ["SAID"]).write_text(told)
    time.sleep(1000)
"""


@contextmanager
def suite(folder: Path, text: str, *options: str) -> Iterator[tuple[proc.Process, str, str]]:
    """The process of a run of one test, its mark, and what the test has said besides.

    The run is a child of this process only in name: it has a session of its own.
    """
    (folder / "test_inner.py").write_text(text)
    said = folder / "said"
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q", *options]
    argv += ["-c", str(REPOSITORY / "pyproject.toml"), f"--rootdir={folder}"]
    argv += [f"--confcutdir={folder}", str(folder / "test_inner.py")]
    with subprocess.Popen(
        argv,
        cwd=REPOSITORY,
        env={**os.environ, "SAID": str(said)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            wait_until(lambda: said.exists() and b" " in said.read_bytes(), "the test has begun")
            found = proc.read(process.pid)
            assert found is not None
            mark, _, told = said.read_text().partition(" ")
            yield found, mark, told
        finally:
            process.kill()


def marked(mark: str) -> list[str]:
    """Living processes of a run of the tests, as a person would describe them."""
    found = proc.scan(having=f"{sweeper.MARK}={mark}")
    return [f"{each.pid} {each.argv}" for each in found if each.alive]


def interrupt(process: proc.Process, number: signal.Signals) -> None:
    """Send the signal as a terminal does, to the group, or as another program, to one process."""
    if number is signal.SIGINT:
        os.killpg(process.group, number)
    else:
        proc.signal_process(process, number)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ("-n", "2")),
        (signal.SIGTERM, ("-n", "2")),
        (signal.SIGKILL, ()),
    ],
    ids=["Ctrl-C", "TERM", "KILL"],
)
def test_processes_go_with_the_run(
    tmp_path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """Given a test in the middle of a run whose task is deaf to TERM, and that has a daemon, when
    pytest is interrupted, then all processes end."""
    with suite(tmp_path, _RUNS, *options) as (process, mark, _):
        assert any("launcher.process.entry" in each for each in marked(mark))
        assert any("sleep" in each for each in marked(mark))
        interrupt(process, number)
        wait_until(lambda: not marked(mark), "nothing of the run is left")


@pytest.mark.prove
def test_hosts_go_with_the_run(tmp_path: Path, testbed_possible: None) -> None:
    """Given a test that has booted four hosts, when pytest is killed, then the hosts end and their
    disks are gone."""
    with suite(tmp_path, _HOSTS) as (process, _, disks):
        assert Path(disks).is_dir() and proc.scan(saying=disks)
        interrupt(process, signal.SIGKILL)
        wait_until(lambda: not Path(disks).exists(), "the disks are gone")
        assert not [each for each in proc.scan(saying=disks) if each.alive]


@pytest.mark.prove
def test_a_run_that_ends_by_itself_is_not_waited_for(tmp_path: Path) -> None:
    """The process that watches ends with the run, and holds none of its output."""
    (tmp_path / "test_inner.py").write_text(
        f"import os\ndef test_says(): print('MARK', os.environ['{sweeper.MARK}'])\n"
    )
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q", "-s"]
    argv += ["-c", str(REPOSITORY / "pyproject.toml"), f"--rootdir={tmp_path}"]
    argv += [f"--confcutdir={tmp_path}", str(tmp_path / "test_inner.py")]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    mark = done.stdout.partition("MARK ")[2].split()[0]
    wait_until(lambda: not proc.scan(saying=mark), "the process that watches has ended")


ONCE = """
import os, pathlib, time
import pytest

def once(name):
    file = pathlib.Path(__file__).with_name(name)
    first = not file.exists()
    file.touch()
    return first
"""
FAILS = "def test_fails(): assert False\n"
PASSES = "def test_passes(): pass\n"
SHAKY = "def test_shaky(): assert not once('shaky')\n"
CRASHES = "def test_crashes():\n    if once('crashes'): os._exit(3)\n"
HANGS = "@pytest.mark.timeout(1)\ndef test_hangs():\n    if once('hangs'): time.sleep(60)\n"
ODD = (
    "@pytest.mark.parametrize('text', ['a b', '[c]', 'é'])\n"
    "def test_odd(text): assert not once(repr(text)[1])\n"
)
GROUPED = (
    "@pytest.mark.xdist_group('lane0')\n"
    "@pytest.mark.parametrize('text', ['a@b', '[c]@d'])\n"
    "def test_grouped(text): assert not once(repr(text)[1])\n"
    "@pytest.mark.xdist_group('lane0')\n"
    "def test_alone(): assert not once('alone')\n"
)
SETUP = "@pytest.fixture\ndef shaky(): assert not once('setup')\ndef test_set_up(shaky): pass\n"


def run(folder: Path, *parts: str, options: tuple[str, ...] = ("-n", "2")) -> tuple[int, str]:
    """Exit code and output of the script for a project of these tests."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_project.py").write_text(ONCE + "".join(parts))
    words = [str(REPOSITORY / ".ci" / "pytest"), sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(
        [*words, *options], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout + done.stderr


def unstable(said: str) -> list[str]:
    """The tests that are named so."""
    lines = said.splitlines()
    return [line.partition("::")[2] for line in lines if line.startswith("unstable: ")]


@pytest.mark.prove
def test_tests_of_a_load_group_run_alone_the_second_time(tmp_path: Path) -> None:
    """Nothing else runs once more: the group is no part of a test's name without workers."""
    code, said = run(tmp_path, PASSES, GROUPED, options=("-n", "2", "--dist", "loadgroup"))
    assert code == 0, said
    assert sorted(unstable(said)) == [
        "test_alone",
        "test_grouped[[c]@d]",
        "test_grouped[a@b]",
    ]
    again = said.partition("once more")[2]
    assert "3 passed" in again and "test_passes" not in again, said


@pytest.mark.prove
@pytest.mark.parametrize(
    ("part", "name"),
    [
        (SHAKY, "test_shaky"),
        (CRASHES, "test_crashes"),
        (HANGS, "test_hangs"),
        (SETUP, "test_set_up"),
    ],
    ids=["fails", "crashes", "hangs", "set up"],
)
def test_what_passes_the_second_time_is_named(tmp_path: Path, part: str, name: str) -> None:
    """Whichever way it failed; the code is 0."""
    code, said = run(tmp_path, PASSES, part)
    assert code == 0, said
    assert unstable(said) == [name]


@pytest.mark.prove
def test_names_of_any_kind_are_found_again(tmp_path: Path) -> None:
    """With blanks, quotes and letters of others."""
    code, said = run(tmp_path, ODD)
    assert code == 0, said
    assert len(unstable(said)) == 3


@pytest.mark.prove
def test_what_fails_twice_is_red(tmp_path: Path) -> None:
    """Also beside one that passes the second time."""
    code, said = run(tmp_path, FAILS, SHAKY)
    assert code == 1 and not unstable(said)


@pytest.mark.prove
def test_more_than_five_are_red(tmp_path: Path) -> None:
    """They are not run again: something is broken."""
    shaky = "".join(f"def test_{n}(): assert not once('{n}')\n" for n in range(6))
    code, said = run(tmp_path, shaky)
    assert code == 1 and "6 tests have failed" in said and not unstable(said)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("part", "options", "expected"),
    [
        (PASSES, ("-n", "2"), 0),
        ("", ("-n", "2"), 5),
        (PASSES, ("--no-such-option",), 4),
        ("import nothing_like_this\n", ("-n", "0"), 2),
    ],
    ids=["all pass", "no tests", "usage", "import"],
)
def test_other_ends_stay(
    tmp_path: Path, part: str, options: tuple[str, ...], expected: int
) -> None:
    """Nothing runs twice."""
    code, said = run(tmp_path, part, options=options)
    assert code == expected and "once more" not in said


PROGRAMS = ("sh", "make", "touch", "mkdir", "cat")
FAKE = """#!{python}
import sys
from pathlib import Path

sys.version_info = {version}
if {broken}:
    sys.exit("pyenv: not found")
for name in {absent}:
    sys.modules[name] = None
if sys.argv[1] == "-c":
    exec(sys.argv[2])
else:  # -m venv, or pip in that venv
    Path({log!r}).open("a").write(Path(__file__).name + " " + " ".join(sys.argv[1:]) + "\\n")
    if sys.argv[2] == "venv":
        place = Path(sys.argv[3], "bin")
        place.mkdir(parents=True)
        place.joinpath("python").symlink_to(__file__)
"""


class Machine:
    """A directory as `PATH`, and a copy of what `make` needs of the repository."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "log"
        for name in PROGRAMS:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)
        self.tree = folder / "tree"
        shutil.copytree(REPOSITORY / ".ci", self.tree / ".ci")
        for name in ("Makefile", "requirements.lock", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, self.tree / name)

    def add(
        self, name: str, version: tuple[int, int], absent: str = "", *, broken: bool = False
    ) -> Path:
        """Put an interpreter there, which may lack a module, or be none."""
        path = self.bin / name
        words = {"python": sys.executable, "log": str(self.log), "broken": broken}
        path.write_text(FAKE.format(version=(*version, 0), absent=absent.split(), **words))
        path.chmod(0o755)
        return path

    def clean(self) -> None:
        """Forget what was built."""
        shutil.rmtree(self.tree / ".venv")
        self.log.unlink()

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Build the virtual environment."""
        environ = {**os.environ, "PATH": str(self.bin), "PYTHON": ""}
        environ |= {"MAKEFLAGS": "", "MAKELEVEL": "0"}
        return subprocess.run(
            ["make", "-s", *words, ".venv/ready"],
            cwd=self.tree,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def built_with(self, *words: str) -> str:
        """The interpreter that built it."""
        done = self.make(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = self.log.read_text().splitlines()
        assert (self.tree / ".venv" / "ready").exists() and len(lines) == 3, lines
        assert "--require-hashes" in lines[1] and "--no-deps" in lines[2]
        name, words_of_it = lines[0].split(" ", 1)
        assert words_of_it == "-m venv .venv"
        return name


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without any Python."""
    return Machine(tmp_path)


def test_the_newest_suitable_interpreter_is_taken(machine: Machine) -> None:
    """Not one that is newer than TensorFlow knows, nor one without venv (as Debian's), nor a shim
    of pyenv for a version that is not chosen; but whatever `make PYTHON=…` names."""
    for name, version in (("python3", (3, 9)), ("python3.11", (3, 11)), ("python3.14", (3, 14))):
        machine.add(name, version)
    machine.add("python3.13", (3, 13), broken=True)
    machine.add("python3.12", (3, 12), absent="ensurepip")
    own = machine.add("mine", (3, 12))
    assert machine.built_with() == "python3.11"
    machine.clean()
    assert machine.built_with(f"PYTHON={own}") == "mine"


@pytest.mark.parametrize(
    ("words", "version", "said"),
    [
        ((), (3, 10), "tfmux needs Python 3.11, 3.12 or 3.13 with venv: install it"),
        (("PYTHON=python3.10",), (3, 10), "tfmux needs Python 3.11, 3.12 or 3.13 with venv"),
        (("PYTHON=/none/python3",), (3, 10), "tfmux needs Python 3.11, 3.12 or 3.13 with venv"),
        ((), (3, 14), "python3.14 -m pip install ."),
        (("PYTHON=python3.14",), (3, 14), "TensorFlow 2.21 has no wheel"),
    ],
)
def test_without_one_it_says_what_can_be_done(
    machine: Machine, words: tuple[str, ...], version: tuple[int, int], said: str
) -> None:
    """In one line, before anything is built; launcher and UI need no TensorFlow."""
    machine.add(f"python3.{version[1]}", version)
    done = machine.make(*words)
    first, *makes = done.stderr.splitlines()
    assert done.returncode == 2 and not done.stdout and not (machine.tree / ".venv").exists()
    assert said in first and all(line.startswith("make:") for line in makes)
