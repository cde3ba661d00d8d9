"""What makes interpreters say where they stand: a program finds all as it would without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.paths import installed_scripts
from tests.support.patience import PATIENCE

STACKS = f"{installed_scripts()}/stacks"
LOOKS_AROUND = """
import os, sys
print(sys.argv, sys.path, sys.flags, sys.orig_argv)
print(__name__, __doc__, __package__, type(__loader__).__name__, __spec__ and __spec__.name)
print(globals().get("__file__"), sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print("sitecustomize" in sys.modules, getattr(sys.modules.get("sitecustomize"), "__file__", None))
print(os.getcwd(), sys.excepthook is sys.__excepthook__, getattr(sys, "mine", None))
print([name for name in sys.modules if "stacks" in name], sorted(os.listdir("/proc/self/fd"))[:4])
"""
PROGRAMS = {
    "looks.py": LOOKS_AROUND,
    "raises.py": "def fail():\n    raise ValueError('no')\nfail()\n",
    "broken.py": "x = = 1\n",
    "exits.py": "import sys\nsys.exit(7)\n",
    "dies.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "package/__main__.py": LOOKS_AROUND,
    "imports.py": "import sitecustomize\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").mkdir()
    return tmp_path


def ran(
    folder: Path, words: tuple[str, ...], path: str, env: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """How a program ended and what it wrote."""
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


FORMS = [
    ("looks.py", "a", "b"),
    ("-m", "looks", "a"),
    ("-c", LOOKS_AROUND, "a"),
    ("package",),
    ("-P", "looks.py"),
    ("-S", "-c", "import sys; print(sys.argv)"),
    ("-I", "looks.py"),
    ("raises.py",),
    ("broken.py",),
    ("exits.py",),
    ("dies.py",),
    ("imports.py",),
    ("missing.py",),
]
OWN = {
    "none": None,
    "one that says something": "import sys\nsys.mine = __name__, __file__, sys.path[:2]\n",
    "one that fails": "import sys\nsys.mine = 1\n1 / 0\n",
    "one that lacks a module": "import not_there\n",
}


@pytest.mark.parametrize("words", FORMS, ids=" ".join)
def test_a_program_is_as_without_it(folder: Path, words: tuple[str, ...]) -> None:
    """Arguments, path, `__main__`, exit status and tracebacks."""
    assert ran(folder, words, f"{STACKS}:{folder}/own") == ran(folder, words, f"{folder}/own")


@pytest.mark.parametrize("own", OWN)
def test_a_sitecustomize_of_the_users_own_is_run(folder: Path, own: str) -> None:
    """The user's own file is the module of that name, and its complaints are reported as ever."""
    if (text := OWN[own]) is not None:
        (folder / "own" / "sitecustomize.py").write_text(text)
    with_ours = ran(folder, ("looks.py",), f"{STACKS}:{folder}/own")
    assert with_ours == ran(folder, ("looks.py",), f"{folder}/own")
    assert ("own/sitecustomize.py" in with_ours[1]) == (own == "one that says something")


CAUGHT = """
status = open("/proc/self/status").read().split("SigCgt:")[1].split()[0]
print(int(status, 16) >> 56 & 1)
"""


def test_it_can_be_switched_off_and_needs_a_descriptor(folder: Path) -> None:
    """And where there is none for it the program starts all the same."""
    assert signal.SIGRTMAX - 7 == 57
    assert ran(folder, ("-c", CAUGHT), STACKS)[1] == "1\n"
    assert ran(folder, ("-c", CAUGHT), STACKS, {"TFMUX_STACKS": "0"})[1] == "0\n"
    limited = f"ulimit -n 100; exec {sys.executable} -c '{CAUGHT}'"
    done = subprocess.run(
        ["sh", "-c", limited], env={**os.environ, "PYTHONPATH": STACKS}, capture_output=True
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"0\n", b"", 0)


def test_interpreters_that_a_program_starts_have_it_too(folder: Path) -> None:
    """Launchers such as torchrun start the programs in which people want to look."""
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CAUGHT!r}])"
    assert ran(folder, ("-c", script), STACKS)[1] == "1\n"
