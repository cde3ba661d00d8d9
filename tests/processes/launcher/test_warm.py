"""Runner of a warm start: a program finds what it finds when Python starts it itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from launcher.paths import installed_scripts
from launcher.plan.shell import warm_start
from tests.support.budgets import variants
from tests.support.patience import PATIENCE, wait_until

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
