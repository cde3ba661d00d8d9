"""`.ci/pytest`: what failed once runs once more, and is not hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.prove


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


def test_names_of_any_kind_are_found_again(tmp_path: Path) -> None:
    """With blanks, quotes and letters of others."""
    code, said = run(tmp_path, ODD)
    assert code == 0, said
    assert len(unstable(said)) == 3


def test_what_fails_twice_is_red(tmp_path: Path) -> None:
    """Also beside one that passes the second time."""
    code, said = run(tmp_path, FAILS, SHAKY)
    assert code == 1 and not unstable(said)


def test_more_than_five_are_red(tmp_path: Path) -> None:
    """They are not run again: something is broken."""
    shaky = "".join(f"def test_{n}(): assert not once('{n}')\n" for n in range(6))
    code, said = run(tmp_path, shaky)
    assert code == 1 and "6 tests have failed" in said and not unstable(said)


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
