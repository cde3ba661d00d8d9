"""Tasks that import and then wait at their gate until their stage begins: the agent, the program,
and whole runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest

from launcher.agent import wire
from launcher.paths import installed_scripts, runs_home
from launcher.plan.shell import warm_start
from launcher.store.runs import RunFolder
from tests.support.agent_client import Client, state_folder
from tests.support.budgets import variants
from tests.support.command import Up, run, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_ports
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tui.commands.plan import output_schema

LOOKS_AROUND = """
import os, sys
print(sys.argv, sys.path[0], sys.flags)
print(__name__, __doc__, __package__, type(__loader__).__name__, __spec__ and __spec__.name)
print(globals().get("__file__"), sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print(os.getcwd(), sorted(os.environ.items()), os.readlink("/proc/self/fd/0"))
print(sorted(os.listdir("/proc/self/fd")), sys.orig_argv, sys.excepthook is sys.__excepthook__)
"""


class Result(NamedTuple):
    """End of a program, and what it wrote."""

    status: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Programs that look around, in each form that Python can start."""
    (tmp_path / "script.py").write_text(LOOKS_AROUND)
    (tmp_path / "link.py").symlink_to(tmp_path / "script.py")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(LOOKS_AROUND)
    (tmp_path / "package" / "part.py").write_text(LOOKS_AROUND)
    (tmp_path / "light.py").write_text("import sys\nSEEN = (list(sys.argv), sys.path[0])\n")
    (tmp_path / "raises.py").write_text("def fail():\n    raise ValueError('no')\nfail()\n")
    (tmp_path / "broken.py").write_text("x = = 1\n")
    (tmp_path / "hook.py").write_text(
        "import sys, traceback\n"
        "sys.excepthook = lambda k, v, t: print(len(traceback.extract_tb(t)), v)\n"
        "1 / 0\n"
    )
    return tmp_path


def warm(argv: Sequence[str], *modules: str) -> list[str]:
    """The command of the warm start of a command."""
    start = warm_start(tuple(argv), sys.executable, modules, "/nowhere", installed_scripts())
    assert start is not None and start.modules == modules
    return list(start.argv(tuple(argv)))


class Waiting:
    """A program that waits at its gate."""

    def __init__(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_gate(self) -> None:
        """Waits until it reads from its gate."""
        call = Path(f"/proc/{self.process.pid}/syscall")
        wait_until(lambda: call.read_text().startswith("0 0x0 "), "it reads from its gate")

    def open(self) -> Result:
        """Opens the gate; how the program ends."""
        out, err = self.process.communicate("\n", timeout=PATIENCE)
        return Result(self.process.returncode, out, err)


def cold(argv: Sequence[str], folder: Path) -> Result:
    """An ordinary start of a program."""
    done = subprocess.run(
        argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


@variants(
    "words",
    [
        ["script.py", "a", "--b"],
        ["./script.py"],
        ["-u", "script.py", "-m", "x"],
        ["-P", "script.py"],
        ["-I", "script.py"],
        ["-EsB", "-X", "dev", "-W", "ignore", "script.py"],
        ["link.py"],
        ["package", "a"],
        ["-P", "package"],
        ["-m", "package", "a"],
        ["-m", "package.part"],
        ["-P", "-m", "package"],
        ["-m", "absent"],
        ["-c", LOOKS_AROUND, "a"],
        ["-c", "import sys; sys.exit('so it is')"],
        ["-c", "import sys; print(sys.stdin.read()); sys.exit(7)"],
        ["-c", "import os; os.abort()"],
        ["-c", "import signal, os; os.kill(os.getpid(), signal.SIGINT)"],
        ["-c", "from concurrent.futures import ThreadPoolExecutor as T; T(1).submit(print, 8)"],
        ["absent.py"],
        ["raises.py"],
        ["-m", "raises"],
        ["broken.py"],
        ["hook.py"],
    ],
    ids=lambda words: " ".join(words)[:30].replace("\n", ""),
    test=8,
)
def test_a_program_sees_an_ordinary_start(folder: Path, words: list[str]) -> None:
    """Arguments, path, `__main__`, descriptors, traceback and status are those of `python …`."""
    argv = [sys.executable, *words]
    assert Waiting(warm(argv, "json"), folder).open() == cold(argv, folder)


def test_options_in_one_word_are_taken_apart(folder: Path) -> None:
    """`-um NAME` and `-mNAME` are the same program."""
    expected = cold([sys.executable, "-u", "-m", "package", "a"], folder)
    for words in (["-um", "package", "a"], ["-umpackage", "a"]):
        result = Waiting(warm([sys.executable, *words], "json"), folder).open()
        assert result == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "script.py"],
        ["{python}"],
        ["{python}", "-"],
        ["{python}", "-i", "script.py"],
        ["{python}", "--help"],
        ["{python}", "-m"],
        ["{python}", "-x", "script.py"],
    ],
    ids=" ".join,
)
def test_other_commands_start_cold(argv: list[str]) -> None:
    """What is no Python program in a file is started as it is."""
    words = tuple(word.replace("{python}", sys.executable) for word in argv)
    assert warm_start(words, sys.executable, ("json",), "", "") is None


def test_only_the_trainer_is_warm_by_default() -> None:
    """`warm = true` means the bundled trainer, `false` nothing."""
    trainer = ("python3", "-m", "trainer", "async")
    start = warm_start(trainer, "p", True, "/x", "/t")
    assert start is not None
    assert start.argv(trainer) == (
        *("python3", "/t/warm.py", "optional", "tensorflow"),
        *("-m", "trainer", "async"),
    )
    assert warm_start(("p", "/x/trainer", "async"), "p", True, "/x", "/t") is not None
    assert warm_start(("python3", "train.py"), "p", True, "/x", "/t") is None
    assert warm_start(trainer, "p", False, "/x", "/t") is None
    assert warm_start(trainer, "p", (), "/x", "/t") is None


def test_modules_are_imported_before_the_gate_and_the_program_behind_it(folder: Path) -> None:
    """The imports find the program's own path and arguments; the script is read when it starts."""
    (folder / "early.py").write_text("import sys\nprint('early', sys.argv, sys.path[0], flush=1)\n")
    script = folder / "late.py"
    script.write_text("print('old')\n")
    waiting = Waiting(warm([sys.executable, "late.py", "x"], "early"), folder)
    assert waiting.process.stdout is not None
    assert waiting.process.stdout.readline() == f"early ['late.py', 'x'] {folder}\n"
    waiting.at_gate()
    script.write_text("import sys\nprint('new', 'early' in sys.modules)\n")
    assert waiting.open() == (0, "new True\n", "")


def test_the_garbage_collector_rests_while_modules_are_imported(folder: Path) -> None:
    """Afterwards it is as it was, or as a module wants it."""
    (folder / "large.py").write_text(
        "import gc\nlists = [[] for _ in range(100_000)]\nruns = gc.get_stats()[0]['collections']\n"
    )
    shows = "import gc, large; print(large.runs, gc.get_threshold(), gc.isenabled())"
    argv = [sys.executable, "-c", shows]
    often, settings = cold(argv, folder).out.split(maxsplit=1)
    seldom, later = Waiting(warm(argv, "large"), folder).open().out.split(maxsplit=1)
    assert int(seldom) < 20 < 100 < int(often)
    assert later == settings
    (folder / "choosy.py").write_text("import gc\ngc.set_threshold(5, 6, 7)\ngc.disable()\n")
    waiting = Waiting(warm(argv, "choosy"), folder)
    assert waiting.open().out.endswith(" (5, 6, 7) False\n")


def test_a_missing_module_ends_a_task_that_lists_it(folder: Path) -> None:
    """The reason names the module and the key; nothing of the program runs."""
    waiting = Waiting(warm([sys.executable, "script.py"], "json", "nowhere.at.all"), folder)
    status, out, err = waiting.open()
    assert (status, out) == (1, "")
    assert err == (
        "ModuleNotFoundError: No module named 'nowhere'\n"
        "tfmux: warm start: cannot import nowhere.at.all, which is listed in warm in [start] of "
        "the cluster file\n"
    )


def test_a_module_that_fails_shows_where(folder: Path) -> None:
    """The traceback begins in the module."""
    status, out, err = Waiting(warm([sys.executable, "script.py"], "raises"), folder).open()
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert lines[:2] == [
        "Traceback (most recent call last):",
        f'  File "{folder}/raises.py", line 3, in <module>',
    ]
    assert "warm.py" not in err


@pytest.mark.parametrize("status", ["0", "3", "'no licence'"])
def test_a_module_that_ends_the_process_is_no_success(folder: Path, status: str) -> None:
    """Some exit when they find no device or licence."""
    (folder / "leaves.py").write_text(f"import sys\nsys.exit({status})\n")
    end = Waiting(warm([sys.executable, "script.py"], "leaves"), folder).open()
    assert (end.status, end.out) == (1, "")
    assert f"SystemExit: {status}".replace("'", "") in end.err
    assert "tfmux: warm start: cannot import leaves, which is listed in warm in" in end.err
    argv = warm([sys.executable, "-c", "print('here')"], "leaves")
    argv[argv.index("required")] = "optional"
    assert Waiting(argv, folder).open() == (0, "here\n", "")


def test_the_trainer_complains_itself_of_a_missing_module(folder: Path) -> None:
    """Nobody has listed what `warm = true` imports."""
    argv = warm([sys.executable, "-c", "print('here')"], "nowhere")
    argv[argv.index("required")] = "optional"
    assert Waiting(argv, folder).open() == (0, "here\n", "")


@pytest.mark.parametrize(
    "work",
    [
        "import threading as t, time\nt.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "import os, time\nif os.fork() == 0:\n    time.sleep(3)\n    os._exit(0)",
    ],
    ids=["thread", "fork"],
)
def test_threads_and_processes_of_an_import_are_named(folder: Path, work: str) -> None:
    """The program runs all the same."""
    (folder / "busy.py").write_text(f"{work}\n")
    argv = [sys.executable, "-c", "import sys; print('busy' in sys.modules)"]
    status, out, err = Waiting(warm(argv, "json", "busy", "light"), folder).open()
    assert (status, out) == (0, "True\n")
    assert err == (
        "tfmux: warm start: importing busy has started a thread or a process before the task's "
        "stage: if that is too early, remove it from warm in [start] of the cluster file\n"
    )


def test_a_lost_gate_is_an_error(folder: Path) -> None:
    """A wrapper that gives another input would let the program begin before its stage."""
    result = cold(warm([sys.executable, "script.py"], "json"), folder)
    assert result.status == 1 and result.out == ""
    assert "has used the standard input" in result.err


@pytest.fixture
def waiting(folder: Path) -> Iterator[Waiting]:
    found = Waiting(warm([sys.executable, "script.py"], "json"), folder)
    found.at_gate()
    yield found
    found.process.kill()
    found.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_at_the_gate_have_their_default(waiting: Waiting, number: int) -> None:
    """A kill ends it as any program that has no handler."""
    os.kill(waiting.process.pid, number)
    assert waiting.process.wait(PATIENCE) == -number
    assert waiting.process.stderr is not None and waiting.process.stderr.read() == ""


SLOW = """
import pathlib, time
print("imports slow", flush=True)
while not pathlib.Path("imported").exists():
    time.sleep(0.02)
"""
"""A module whose import takes until the test says so."""

TASK = """
import os, socket, sys, time
task, port = sys.argv[1:]
print("begins", "slow" in sys.modules, os.environ["TF_CONFIG"][:1], flush=True)
server = socket.create_server(("127.0.0.1", int(port)))
while not os.path.exists(f"end-{task}"):
    time.sleep(0.05)
print("ends", flush=True)
"""
PS_WAITS = TASK.replace(
    "server =", "while task == 'ps:0' and not os.path.exists('go'): time.sleep(0.05)\nserver =", 1
)
CLUSTER = """
name = "warm"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["{{python}}", "-u", "task.py", "{{job}}:{{index}}", "{{port}}"]
grace = 5
{run}
[start]
order = [["ps"], ["worker:0"], ["worker"]]
warm = {warm}
"""


@pytest.fixture
def runs_folder(tmp_path: Path) -> Path:
    """A program that listens, and a module whose import takes until `imported` is there."""
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def cluster(folder: Path, warm: str = '["slow"]', settings: str = "", **changes: str) -> Path:
    text = CLUSTER.format(warm=warm, run=settings)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return write(folder, text)


def end(folder: Path, *tasks: str) -> None:
    for task in tasks:
        (folder / f"end-{task}").touch()


def pid_at_gate(up: Up, task: str) -> int:
    """The pid of a task that imports or waits; its stage may have come in the same moment."""
    event = up.wait_for(
        lambda e: (
            e.get("task") == task and e.get("state") in ("warming", "starting") and "pid" in e
        ),
        f"the process of {task}",
    )
    return int(event["pid"])


def begin_of(up: Up, task: str) -> float:
    return float(up.log(task, "begins")["time"])


def test_all_import_at_once_and_begin_in_their_order(runs_folder: Path) -> None:
    """Each task has one process from the beginning. No program begins before the stage before it
    listens, although all have imported long ago; the log has what imports and program print."""
    with Up("up", str(cluster(runs_folder)), "--json") as up:
        for task in ("worker:0", "worker:1"):
            up.log(task, "imports slow")
        pids = {task: pid_at_gate(up, task) for task in ("worker:0", "worker:1")}
        (runs_folder / "imported").touch()
        listening = float(up.state("ps:0", "ready")["time"])
        for task in ("worker:0", "worker:1"):
            assert begin_of(up, task) >= listening
            listening = float(up.state(task, "ready")["time"])
            assert up.state(task, "ready")["pid"] == pids[task]
        end(runs_folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    states = [e["state"] for e in up.of("task") if e["task"] == "worker:1"]
    wanted = ["pending", "staging", "warming", "starting", "ready", "exited"]
    assert list(dict.fromkeys(states)) == wanted
    logs = RunFolder(runs_home() / up.run_id).path
    assert (logs / "ps-0.log").read_text().startswith("begins False {\n")
    assert (logs / "worker-1.log").read_text() == "imports slow\nbegins True {\nends\n"


def test_a_kill_while_all_wait_leaves_nothing(runs_folder: Path) -> None:
    """Tasks at their gates, or in an import, end with the run; the receipt says so."""
    (runs_folder / "task.py").write_text(PS_WAITS)
    with Up("up", str(cluster(runs_folder)), "--json") as up:
        up.log("worker:0", "imports slow")
        pid = pid_at_gate(up, "worker:0")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert up.of("receipt")[-1]["clean"]
    assert proc.read(pid) is None
    assert {e["state"] for e in up.of("task") if e["task"] == "worker:0"} == {
        *("pending", "staging", "warming", "killed")
    }


def test_a_dead_launcher_is_followed_by_one_that_releases(runs_folder: Path) -> None:
    """Killed while its tasks wait: they wait on, and the next launcher goes on with the stages."""
    file = cluster(runs_folder, settings='on_disconnect = "keep"\nlease = 60')
    (runs_folder / "task.py").write_text(PS_WAITS)
    (runs_folder / "imported").touch()
    with Up("up", str(file), "--json") as up:
        up.log("ps:0", "begins")
        up.log("worker:0", "imports")
        up.log("worker:1", "imports")
        pids = [pid_at_gate(up, f"worker:{index}") for index in (0, 1)]
        run_id = up.run_id
        up.kill_launcher()
    assert all((process := proc.read(pid)) and process.alive for pid in pids)
    with Up("attach", run_id, "--json") as again:
        again.state("worker:1", "warming")
        (runs_folder / "go").touch()
        for index in (0, 1):
            ready = again.state(f"worker:{index}", "ready")
            assert (ready["pid"], ready["attempt"]) == (pids[index], 1)
        end(runs_folder, "worker:0", "worker:1")
        assert again.wait() == 0, again.transcript()
    assert proc.read(pids[0]) is None


def test_a_restart_in_its_stage_waits_for_nothing(runs_folder: Path) -> None:
    """The next attempt is an ordinary start; the one before waited at its gate."""
    (runs_folder / "imported").touch()
    file = cluster(runs_folder, settings='on_failure = "restart"\nmax_restarts = 1')
    task = runs_folder / "task.py"
    failing = "if task == 'worker:1' and not os.path.exists('tried'):\n"
    failing += "    open('tried', 'w').close()\n    sys.exit(3)\nserver ="
    task.write_text(TASK.replace("server =", failing, 1))
    with Up("up", str(file), "--json") as up:
        up.wait_for(
            lambda e: (e.get("task"), e.get("state"), e.get("attempt")) == ("worker:1", "ready", 2),
            "the second attempt",
        )
        end(runs_folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    log = (RunFolder(runs_home() / up.run_id).path / "worker-1.log").read_text()
    assert log == "imports slow\nbegins True {\nbegins False {\nends\n"


def test_setup_and_interpreter_options_are_kept(runs_folder: Path) -> None:
    """The shell line runs before the imports, and neither sees nor closes the gate."""
    (runs_folder / "imported").touch()
    lines = "export SET=$(cat)up; exec </dev/null; echo $SET"
    file = cluster(runs_folder, settings=f"setup = {json.dumps(lines)}", **{'"-u"': '"-uB"'})
    task = runs_folder / "task.py"
    task.write_text(
        "import sys; print(sys.flags.dont_write_bytecode, sys.stdin.read() == '')\n" + TASK
    )
    with Up("up", str(file), "--json") as up:
        up.state("worker:1", "ready")
        end(runs_folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    log = (RunFolder(runs_home() / up.run_id).path / "worker-1.log").read_text()
    assert log == "up\nimports slow\n1 True\nbegins True {\nends\n"


def test_a_module_that_one_host_lacks_is_named(runs_folder: Path) -> None:
    """The run fails at once, by the task of that host; the message names module and key."""
    (runs_folder / "imported").touch()
    with SshServer(runs_folder / "server") as server:
        text = cluster(runs_folder, '["slow", "only_here"]').read_text()
        text = text.replace("[jobs.ps]", server.host_toml("far", sys.executable) + "[jobs.ps]")
        text = text.replace('["localhost:auto", "localhost:auto"]', '["far:auto", "far:auto"]', 1)
        text = text.replace("[jobs.ps]", '[hosts.localhost]\naddress = "127.0.0.1"\n[jobs.ps]')
        (runs_folder / "only_here.py").write_text("")
        text = text.replace("[run]\n", '[run]\nexclude = ["only_here.py", "server"]\n', 1)
        done = run("up", str(write(runs_folder, text)), "--headless")
    assert done.returncode == 1, done.stderr
    assert "ModuleNotFoundError: No module named 'only_here'" in done.stderr
    assert "cannot import only_here, which is listed in warm in [start]" in done.stderr
    assert "worker:" in done.stderr and "on far" in done.stderr


def test_the_plan_says_what_is_imported(runs_folder: Path) -> None:
    """`tfmux plan` names the modules; its commands are the ordinary ones."""
    assert "\n    warm:    slow\n" in run("plan", str(cluster(runs_folder))).stdout
    answer = json.loads(run("plan", str(cluster(runs_folder)), "--json").stdout)
    jsonschema.validate(answer, output_schema())
    assert [task["warm"] for task in answer["tasks"]] == [[], ["slow"], ["slow"]]
    assert answer["tasks"][0]["argv"][1:3] == ["-u", "task.py"]


def test_false_starts_each_task_in_its_stage(runs_folder: Path) -> None:
    """No process before it."""
    with Up("up", str(cluster(runs_folder, "false")), "--json") as up:
        up.state("worker:1", "ready")
        end(runs_folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    assert "warming" not in {e["state"] for e in up.of("task")}
    born = [e for e in up.of("task") if e["state"] == "starting" and "pid" in e]
    assert [e["task"] for e in born] == ["ps:0", "worker:0", "worker:1"]


WAITS = """
import os
print("imports", flush=True)
if not os.read(0, 1):
    raise SystemExit("lost")
print("begins", flush=True)
"""
LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
import time; time.sleep(600)
"""


@pytest.fixture
def gated() -> Iterator[Client]:
    """A launcher's channel to the agent of a run of its own."""
    with Client() as channel:
        channel.hello()
        yield channel
        channel.kill()
        channel.leave()


def release(gated: Client, task: str, attempt: int = 1) -> None:
    gated.send(wire.RELEASE, {"task": task, "attempt": attempt})


def test_a_gated_task_begins_when_it_is_released(gated: Client) -> None:
    """Only this attempt of this task; a second release changes nothing."""
    started = gated.python("worker:0", WAITS, gated=True)
    assert started["pid"] and started["gated"]
    gated.follow("worker:0")
    gated.log_until(b"imports")
    release(gated, "worker:1")
    release(gated, "worker:0", 2)
    gated.ask(wire.STATS, {})  # it has read both
    assert (process := proc.read(started["pid"])) is not None and process.alive
    release(gated, "worker:0")
    release(gated, "worker:0")
    ended = gated.get(wire.EXITED, task="worker:0")
    assert ended["status"] == 0 and not ended["gated"]
    assert gated.log_until(b"begins\n") == b"imports\nbegins\n"


def test_a_release_may_come_before_the_process(gated: Client) -> None:
    """Start and release in one piece: the task begins."""
    for number in range(10):
        task = f"worker:{number}"
        argv = ["sh", "-c", "read line"]  # fails at the end of its input
        body = {"task": task, "attempt": 1, "argv": argv, "env": {}, "cwd": "/"}
        body |= {"log_limit": 1 << 20, "port": None, "pty": False, "gated": True}
        frames = wire.encode(wire.START, body)
        gated.write(frames + wire.encode(wire.RELEASE, {"task": task, "attempt": 1}))
    for number in range(10):
        assert gated.get(wire.EXITED, task=f"worker:{number}")["status"] == 0


def test_a_start_without_a_gate_releases_the_same_attempt(gated: Client) -> None:
    """The start is asked for again after a cut, and its stage has come."""
    waits = gated.python("worker:0", WAITS, gated=True)
    again = gated.python("worker:0", WAITS)
    assert again["pid"] == waits["pid"]
    assert gated.get(wire.EXITED, task="worker:0")["status"] == 0


def test_a_port_at_the_gate_is_no_readiness(gated: Client) -> None:
    """A module that listens when it is imported is heard of when its stage has come."""
    port, other = free_ports(2)
    gated.python("ps:0", LISTENS, str(port), port=port, gated=True)
    gated.follow("ps:0")
    gated.log_until(b"listens")
    gated.python("ps:1", LISTENS, str(other), port=other)
    gated.get(wire.LISTENING, task="ps:1")  # by a look that would have found the other one, too
    assert not any(frame.type == wire.LISTENING for frame in gated.frames)
    release(gated, "ps:0")
    assert gated.get(wire.LISTENING, task="ps:0")["listening"]


def test_a_kill_at_the_gate_leaves_nothing(gated: Client) -> None:
    """With its grace, as any task; what the task has not begun it does not begin."""
    pid = gated.python("worker:0", WAITS, gated=True)["pid"]
    gated.follow("worker:0")
    gated.log_until(b"imports")
    receipt = gated.kill(["worker:0"], grace=60.0)
    assert receipt["signalled"] == 1 and not receipt["survivors"]
    assert gated.get(wire.EXITED, task="worker:0")["signal"] == "TERM"
    assert proc.read(pid) is None
    assert b"begins" not in gated.logs[0]


def test_the_death_of_the_agent_ends_a_task_at_its_gate() -> None:
    """The end of its input is no release."""
    with Client() as client:
        client.hello()
        pid = client.python("worker:0", WAITS, gated=True)["pid"]
        client.follow("worker:0")
        client.log_until(b"imports")
        process = proc.read(pid)
        assert process is not None
        os.kill(process.ppid, signal.SIGKILL)
        assert proc.wait_gone(process)
        log = state_folder(client.run_id) / "logs" / "worker-0.log"
        assert b"begins" not in log.read_bytes()


def test_another_launcher_learns_who_waits() -> None:
    """The welcome says it; the release of the second one counts."""
    with Client() as client:
        client.hello()
        client.python("worker:0", WAITS, gated=True)
        client.python("worker:1", WAITS, gated=True)
        release(client, "worker:0")
        client.get(wire.EXITED, task="worker:0")
    with Client(client.run_id) as again:
        tasks = {facts["task"]: facts["gated"] for facts in again.hello()["tasks"]}
        assert tasks == {"worker:0": False, "worker:1": True}
        release(again, "worker:1")
        assert again.get(wire.EXITED, task="worker:1")["status"] == 0
        again.kill()
        again.leave()


def test_a_terminal_has_no_gate() -> None:
    """Such a request costs the channel, as every wrong one."""
    body = {"task": "worker:0", "attempt": 1, "argv": ["cat"], "env": {}, "cwd": "/"}
    with Client() as client:
        client.hello()
        client.send(wire.START, {**body, "log_limit": 1, "port": None, "pty": True, "gated": True})
        assert any("a terminal has no gate" in f.body.decode() for f in client.everything())
