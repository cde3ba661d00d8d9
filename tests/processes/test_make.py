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
