"""`make`: the interpreter that it takes, with interpreters of any version on `PATH`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE

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
        absent_modules = absent.split()
        path.write_text(
            FAKE.format(
                python=sys.executable,
                version=(*version, 0),
                absent=absent_modules,
                broken=broken,
                log=str(self.log),
            )
        )
        path.chmod(0o755)
        return path

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Build the virtual environment."""
        environ = {**os.environ, "PATH": str(self.bin)} | {
            "PYTHON": "",
            "MAKEFLAGS": "",
            "MAKELEVEL": "0",
        }
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
    """Not one that is newer than TensorFlow knows, nor one without venv, nor a shim of pyenv for
    a version that is not chosen."""
    for name, version in (("python3", (3, 9)), ("python3.11", (3, 11)), ("python3.14", (3, 14))):
        machine.add(name, version)
    machine.add("python3.13", (3, 13), broken=True)
    machine.add("python3.12", (3, 12))
    assert machine.built_with() == "python3.12"


def test_an_interpreter_without_venv_is_passed_over(machine: Machine) -> None:
    """Debian has venv's installer in a package of its own."""
    machine.add("python3.13", (3, 13), absent="ensurepip")
    machine.add("python3", (3, 11))
    assert machine.built_with() == "python3"


def test_a_given_interpreter_is_taken(machine: Machine) -> None:
    """`make PYTHON=…`, also by a path."""
    machine.add("python3.13", (3, 13))
    own = machine.add("mine", (3, 11))
    assert machine.built_with(f"PYTHON={own}") == "mine"


@pytest.mark.parametrize("words", [(), ("PYTHON=python3.10",), ("PYTHON=/none/python3",)])
def test_without_one_it_says_what_to_install(machine: Machine, words: tuple[str, ...]) -> None:
    """In one line, before anything is built."""
    machine.add("python3", (3, 10))
    machine.add("python3.10", (3, 10))
    done = machine.make(*words)
    said, *makes = done.stderr.splitlines()
    assert done.returncode == 2 and not done.stdout and not (machine.tree / ".venv").exists()
    assert said.startswith("tfmux needs Python 3.11, 3.12 or 3.13 with venv: install it")
    assert all(line.startswith("make:") for line in makes)


@pytest.mark.parametrize("words", [(), ("PYTHON=python3.14",)])
def test_what_is_possible_with_too_new_a_python_is_said(
    machine: Machine, words: tuple[str, ...]
) -> None:
    """TensorFlow 2.21 has no wheel for 3.14; launcher and UI need none."""
    machine.add("python3.14", (3, 14))
    done = machine.make(*words)
    said, *makes = done.stderr.splitlines()
    assert done.returncode == 2 and not (machine.tree / ".venv").exists()
    assert "TensorFlow 2.21 has no wheel" in said and "python3.14 -m pip install ." in said
    assert all(line.startswith("make:") for line in makes)
