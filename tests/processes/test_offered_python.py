"""Another Python of the host that has what is missing: found, named by its path."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest

from launcher.cluster.read import load
from launcher.ids import new_run_id
from launcher.on_host import probe
from launcher.preflight import report_schema
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write

LIBRARY = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def environment(place: Path, module: str = "tensorflow") -> Path:
    """A virtual environment that has a module, by the Python of the tests; returns its program."""
    (place / LIBRARY / module).mkdir(parents=True)
    (place / LIBRARY / module / "__init__.py").touch()
    (place / "bin").mkdir()
    base = Path(sys.base_prefix) / "bin"
    (place / "pyvenv.cfg").write_text(f"home = {base}\n")
    program = place / "bin/python3"
    program.symlink_to(base / "python3")
    return program


def offered(module: str = "tensorflow", *known: str) -> list[str]:
    """The interpreters that are found in this home."""
    found = probe.pythons({"module": module, "known": known})["found"]
    assert all(version == ".".join(map(str, sys.version_info[:3])) for _, version in found)
    home = str(Path.home())
    return [path for path, _ in found if path.startswith((home, "~")) or path in known]


PLACES = (
    *("venv", "venv-tf", ".venv", "tf-env", ".virtualenvs/tf", "project/.venv"),
    *(".pyenv/versions/3.11.7", "miniconda3", "miniforge3/envs/tf", ".conda/envs/tf"),
)


@pytest.mark.parametrize("place", PLACES)
def test_the_usual_places(place: str, tfmux_home: Path) -> None:
    """A module is looked for in each; one that is nowhere is not found."""
    program = environment(Path.home() / place, "some_module")
    assert offered("some_module") == [str(program)]
    assert offered("another_module") == []


def test_what_is_not_offered(tfmux_home: Path) -> None:
    """Given an environment whose program is anybody's to change, one that does not run, and one
    that has the folder but not the module, then none of them is started or named."""
    told = Path.home() / "told"
    for name, text in {
        "venv-open": f"#!/bin/sh\ntouch {told}\n",
        "venv-broken": "no program",
    }.items():
        program = environment(Path.home() / name)
        program.unlink()
        program.write_text(text)
        program.chmod(0o777 if name == "venv-open" else 0o755)
    assert offered() == []
    assert not told.exists()


def test_the_last_used_one_comes_first(tfmux_home: Path) -> None:
    """Where it still has the module."""
    environment(Path.home() / "venv")
    used = environment(Path.home() / "elsewhere/deep/tf")
    assert offered("tensorflow", "/nowhere/python", str(used))[0] == str(used)


def test_a_check_names_it(tfmux_home: Path, tmp_path: Path) -> None:
    """Given a cluster whose Python has no TensorFlow, and an environment in the home that has it,
    then text and JSON say its path; given that an earlier run of this machine has used another
    one, then that is offered."""
    lacks = environment(Path.home() / "lacks", "nothing")
    program = environment(Path.home() / "venv")

    def text(python: Path) -> str:
        hosts = {"localhost": {"python": str(python)}}
        return cluster_text({"worker": 1}, hosts=hosts, command=["{python}", "-c", "pass"])

    file = write(tmp_path, text(lacks))
    done = run("check", str(file))
    assert f'→ write python = "{program}" for the host: that one has TensorFlow' in done.stdout
    used = environment(Path.home() / "elsewhere/deep/tf")
    (tmp_path / "earlier").mkdir()
    earlier = write(tmp_path / "earlier", text(used))
    RunFolder.create(new_run_id("earlier"), earlier.read_text(), load(earlier))
    found = json.loads(run("check", str(file), "--json").stdout)
    jsonschema.validate(found, report_schema())
    offers = {each["check"]: each["offer"] for each in found["findings"] if each["offer"]}
    assert offers == {"tensorflow": str(used)}
    assert os.access(offers["tensorflow"], os.X_OK)
