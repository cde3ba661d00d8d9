"""Cluster files: sizes, texts and files that they name, and changes while a run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.cluster.read import load, loads
from launcher.errors import ClusterFileError, Problem
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text, problems
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.scenario import FaultScenario, ready
from tests.testbed import guard

LARGEST = 1 << 20
NAME = 'name = "x"\n'
RUN = '[run]\nworkdir = ""\n'
JOB = '[jobs.worker]\ntasks = ["localhost:auto"]\n'
HEAD = f'{NAME}{JOB}{RUN}command = ["true"]\n'
LOCAL = '"localhost:auto",'
MANY = f"{NAME}[jobs.worker]\ntasks = [{LOCAL * 2000}]\n{RUN}"
LETTERS = r"\pL"
RANGE = "[1-1000]"


def repeated(part: str | Callable[[int], str], size: int = LARGEST - 60_000) -> str:
    """A part of a text, with its number where it has one, as often as there is room."""
    first = part if isinstance(part, str) else part(1000)
    times = size // (len(first.encode()) + (not isinstance(part, str)))
    return part * times if isinstance(part, str) else "".join(map(part, range(times)))


def listed(key: str, part: str | Callable[[int], str]) -> str:
    """A list of one key, in the last table."""
    return f"{key} = [{repeated(part)}]\n"


SHAPES: dict[str, Callable[[], str]] = {
    # no cluster file at all
    "comments": lambda: HEAD + repeated("# a\n"),
    "blank lines": lambda: HEAD + repeated("\n"),
    "carriage returns": lambda: HEAD + repeated("\r"),
    "open brackets": lambda: "x = " + repeated("["),
    "deep lists": lambda: "x = [" + repeated("[" * 300 + "]" * 300 + ",") + "]",
    "deep tables": lambda: "x = " + repeated("{a="),
    "deep key": lambda: repeated("a.") + "a = 1",
    "deep header": lambda: "[" + repeated("a.") + "a]",
    "deep keys": lambda: repeated(lambda n: "a." * 60 + f"b{n} = 1\n"),
    "spaced dots": lambda: "a" + repeated(" . b") + " = 1",
    "quoted parts": lambda: '"a"' + repeated('."b"') + " = 1",
    "wide headers": lambda: repeated(lambda n: f"[{'.'.join(f'a{n}_{k}' for k in range(15))}]\n"),
    "keys": lambda: HEAD + repeated(lambda n: f"k{n}=1\n"),
    "quoted keys": lambda: HEAD + repeated(lambda n: f'"\\u0061{n}"=1\n'),
    "tables": lambda: HEAD + repeated(lambda n: f"[t{n}]\n"),
    "arrays of tables": lambda: HEAD + repeated("[[t]]\n[[t.u]]\n[[t.u.v]]\n"),
    "inline tables": lambda: HEAD + listed("x", "{a=1},"),
    "numbers": lambda: HEAD + listed("x", "1,"),
    "unclosed list": lambda: HEAD + "x = [" + repeated("1,"),
    "long number": lambda: HEAD + "x = " + repeated("1"),
    "hexadecimal": lambda: HEAD + "x = 0x" + repeated("f"),
    "quotes": lambda: HEAD + "x = " + repeated('"'),
    "apostrophes": lambda: HEAD + "x = " + repeated("'"),
    "escaped quotes": lambda: HEAD + 'x = "' + repeated('\\"'),
    "text in lines": lambda: HEAD + 'x = """' + repeated('"" \\\n'),
    "words": lambda: HEAD + "x = " + repeated("word "),
    # values of a cluster file
    "same problem": lambda: HEAD + "[run.env]\n" + repeated(lambda n: f'A{n}="{{x}}"\n', 400_000),
    "unknown keys": lambda: HEAD + repeated(lambda n: f'taskz{n}=""\n', 400_000),
    "wrong tasks": lambda: NAME + "[jobs.worker]\n" + listed("tasks", '"a b",') + RUN,
    "patterns of tasks": lambda: (
        NAME + "[jobs.worker]\n" + listed("tasks", '"tf[1-1000]:1",') + RUN
    ),
    "many patterns": lambda: (
        f'{NAME}[jobs.worker]\ntasks = ["tf{RANGE * 100_000}:1"]\n{RUN}command = ["true"]\n'
    ),
    "hosts": lambda: NAME + repeated(lambda n: f'[hosts.h{n}]\nssh="h"\n') + HEAD[len(NAME) :],
    "jumps": lambda: f'{NAME}[hosts.h]\njump = "{repeated("a,")}a"\n{HEAD[len(NAME) :]}',
    "jobs": lambda: NAME + RUN + repeated(lambda n: f'[jobs.j{n}]\ntasks=["localhost:auto"]\n'),
    "braces": lambda: f'{NAME}{JOB}{RUN}command = ["' + repeated("{a") + '"]\n',
    "placeholders": lambda: (
        f'{NAME}{JOB}{RUN}command = ["' + repeated(lambda n: f"{{b{n}}}") + '"]\n'
    ),
    "addresses": lambda: (
        f'{MANY}command = ["true"]\n[run.env]\n' + repeated(lambda n: f'A{n}="{{cluster}}"\n')
    ),
    "environments": lambda: (
        f'{MANY}command = ["true"]\n[run.env]\n' + repeated(lambda n: f'A{n}="v"\n', 600_000)
    ),
    "ignored": lambda: HEAD + listed("exclude", lambda n: f'"*.a{n}",'),
    "stars": lambda: HEAD + 'exclude = ["' + repeated("*a") + '"]\n',
    "starred": lambda: HEAD + listed("exclude", '"' + "*a" * 2000 + '",'),
    "expression": lambda: f"{HEAD}[metrics]\npattern = '(?P<step>{repeated(LETTERS)})'\n",
    "expressions": lambda: (
        NAME
        + RUN
        + repeated(
            lambda n: (
                f"[jobs.j{n}]\ntasks=['localhost:auto']\nready={{log='(?i){LETTERS * 90}{n}'}}\n"
            )
        )
    ),
    "large expressions": lambda: (
        NAME
        + RUN
        + repeated(
            lambda n: f"[jobs.j{n}]\ntasks=['localhost:auto']\nready={{log='(.{{9}}){{90}}{n}'}}\n",
            20_000,
        )
    ),
    "order": lambda: HEAD + "[start]\n" + listed("order", lambda n: f'["w{n}"],'),
}

READ = """
import resource, sys, time
from pathlib import Path
from launcher.cluster.read import load
from launcher.errors import ClusterFileError
try:
    load(Path(sys.argv[1]).with_name("none"))
except ClusterFileError:
    pass
began, small = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(Path(sys.argv[1]))
except ClusterFileError as error:
    assert 0 < len(error.problems) <= 101, len(error.problems)
    assert len(str(error)) < 200_000
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - small)
"""


@variants("shape", SHAPES, test=5)
def test_any_file_is_read_or_refused_in_time(tmp_path: Path, shape: str) -> None:
    """The processor's time, so that a busy machine is no reason; a blow-up takes minutes. The
    problems that are told are no more than a screen or two."""
    file = tmp_path / "c.toml"
    text = SHAPES[shape]().encode()
    assert len(text) <= LARGEST
    file.write_bytes(text)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    seconds, kilobytes = map(float, done.stdout.split())
    assert seconds < 10 and kilobytes < 200_000


def test_addresses_that_linux_does_not_take_are_an_error() -> None:
    """A word or a variable of 128 KiB starts no program: it is said before anything is started,
    with the way out. The bound is exact: `TF_CONFIG` of one task less is taken."""

    name = "a" * 120

    def text(count: int, more: str = "", run: str = "") -> str:
        places = ",".join(f'"tf1:{number}"' for number in range(10000, 10000 + count))
        return (
            f'[hosts.tf1]\nssh = "tf1"\naddress = "{name}"\n[jobs.worker]\n'
            f"tasks = [{places}]\n{more}\n"
            f"[run]\ncommand = ['true', '{{index}}']\n{run}\n"
        )

    def wrong(text: str) -> list[Problem]:
        try:
            loads(text, "cluster.toml", Path("/"))
        except ClusterFileError as error:
            return list(error.problems)
        return []

    def taken(count: int) -> bool:
        spec = {"worker": [f"{name}:{number}" for number in range(10000, 10000 + count)]}
        config = {"cluster": spec, "task": {"type": "worker", "index": count - 1}}
        longest = len(f"TF_CONFIG={json.dumps(config)}")
        with suppress(OSError):
            return subprocess.run(["true"], env={"A": "x" * (longest - 2)}).returncode == 0
        return False

    most = bisect_left(range(2048), True, lo=500, key=lambda n: bool(wrong(text(n)))) - 1
    assert taken(most) and not taken(most + 1)
    (problem,) = wrong(text(most + 1))
    assert problem.key == "jobs.worker.tasks"
    assert "in_cluster = false" in problem.message and "131071" in problem.message
    assert not wrong(text(most + 1, "in_cluster = false"))
    assert not wrong(text(most + 1, run='framework = "none"'))
    env = "framework = 'none'\nenv = { ALL = 'a{worker_hosts}', NONE = '{{cluster}}' }"
    assert [p.key for p in problems(text(1100, run=env))] == ["run.env.ALL"]


TEXT = cluster_text({"worker": 2}, "changed", command=["sleep", "1000"], workdir="work", grace=1)


class Interrupted(LauncherProcess):
    """A launcher process for whose run something changes right before it gets its order."""

    def __init__(self, change: str, folder: Path) -> None:
        super().__init__()
        self._change = change
        self._folder = folder

    def order(self, *words: object) -> object:  # type: ignore[override]
        (copy,) = runs_home().glob("*/cluster.toml")
        match self._change:
            case "ports":
                copy.write_text(TEXT.replace("localhost:auto", "localhost:2222"))
            case "workdir":
                (self._folder / "work").rmdir()
        return super().order(*words)  # type: ignore[arg-type]


@pytest.mark.parametrize(("change", "said"), [("ports", "2222"), ("workdir", "no such directory")])
def test_a_change_before_the_order_ends_the_run(tmp_path: Path, change: str, said: str) -> None:
    """Given a file that was checked for its launch, when the run's copy gets another text, or the
    workdir goes, before the launcher process has its order, then the run ends with exit code 4 and
    that reason, and no task was started."""
    (tmp_path / "work").mkdir()
    file = write(tmp_path, TEXT)
    client = RunClient.launch(
        load(file, for_launch=True), TEXT, process=Interrupted(change, tmp_path)
    )
    assert client.wait(PATIENCE)
    end = client.snapshot()
    client.close()
    assert end.exit_code == 4 and said in end.launcher_error
    assert not guard.tasks_here()


LAUNCHED = """
name = "kept"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["sleep", "1000"]
grace = 1
on_disconnect = "keep"
[start.ready]
worker = "started"
"""
CHANGES = {
    "edited": LAUNCHED.replace('"localhost:auto", ', "").replace("1000", "2000"),
    "another cluster": '[jobs.other]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["true"]\n',
    "broken": "= = no cluster file",
    "deleted": None,
}


def sleeping(run_id: str) -> list[int]:
    """The tasks of a run, by their pids."""
    found = FaultScenario.here(run_id)
    return sorted(p.pid for p in found if p.argv == ("sleep", "1000"))


@pytest.mark.prove
def test_a_run_keeps_what_it_was_launched_with(tmp_path: Path) -> None:
    """Given a run whose file is edited, replaced, broken and deleted, when its launcher dies and
    another takes the run up each time, then its tasks are those that were launched; and a kill
    ends them."""
    file = write(tmp_path, LAUNCHED)
    up = Up("up", str(file), "--json")
    try:
        up.state("worker:1", "ready")
        run_id = up.run_id
        tasks = sleeping(run_id)
        assert len(tasks) == 2
        for change in CHANGES.values():
            up.kill_launcher()
            if change is None:
                file.unlink()
            else:
                file.write_text(change)
            up = Up("attach", run_id, "--json")
            up.wait_for(lambda e: e.get("state") == "running", "the run goes on")
            ready(up, "worker:0", "worker:1")
            assert {e["state"] for e in up.of("task")} == {"ready"}
            assert sleeping(run_id) == tasks
            shown = command.run("ps", "--json")
            (row,) = json.loads(shown.stdout)
            assert (row["run"], row["state"]) == (run_id, "running")
        assert RunFolder.find(run_id).cluster_file.read_text() == LAUNCHED
        done = command.run("kill", run_id)
        assert done.returncode == 0 and "no process is left" in done.stdout, done
        assert up.wait() == 130
        assert FaultScenario.here(run_id) == []
    finally:
        with up:
            pass
