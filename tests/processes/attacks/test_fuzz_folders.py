"""Any damage to the files of a run's folder, at once in several of them: every command ends with an
exit code and a sentence, none with a traceback."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.paths import runs_home
from tests.support import command
from tests.support.budgets import examples
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tui.exits import Exit
from tui.main import main

PROGRAM = "for step in range(300): print('step', step, 'loss', 1 / (step + 1), flush=True)"
READERS = [
    ["ps"],
    ["ps", "--json"],
    ["logs", "RUN"],
    ["logs", "RUN", "worker:0", "--raw"],
    ["stacks", "RUN"],
    ["collect", "RUN"],
    ["rm", "RUN"],
]
"""Commands that start no launcher process; the last one may delete the folder."""
LAUNCHER = {"name": "other", "id": "other", "boot": "other", "pids": 1, "time": 1.0}
"""Another machine: none of its tasks can be asked for here, and none is waited for."""

_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["localhost", "worker:7", "ended", "up", "\x1b[2J", "/", "..", "\ud800", "\0"]),
    st.lists(st.integers(), max_size=2),
    st.just({"a": {"b": [None]}}),
)
Damage = Callable[[Path], None]


def _gone(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _linked(target: str) -> Damage:
    def damage(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return damage


def _zeros(path: Path) -> None:
    os.truncate(path, path.stat().st_size + (1 << 22))


@st.composite
def _cut(draw: st.DrawFn) -> Damage:
    share = draw(st.floats(0, 1))
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


@st.composite
def _bytes(draw: st.DrawFn) -> Damage:
    """Bytes somewhere in the file, or instead of it."""
    junk, share, whole = draw(st.binary(max_size=60)), draw(st.floats(0, 1)), draw(st.booleans())

    def damage(path: Path) -> None:
        data = path.read_bytes()
        at = int(len(data) * share)
        path.write_bytes(junk if whole else data[:at] + junk + data[at + len(junk) :])

    return damage


@st.composite
def _fields(draw: st.DrawFn) -> Damage:
    """A record with a field exchanged for an odd value, at any depth, or without it; the records
    behind it may be gone, or come twice."""
    at, steps = draw(st.floats(0, 1)), draw(st.lists(st.floats(0, 0.999), min_size=1, max_size=5))
    odd, drops, rest = draw(_ODD), draw(st.booleans()), draw(st.sampled_from([0, 1, 1, 2]))

    def damage(path: Path) -> None:
        lines = path.read_bytes().splitlines() or [b"{}"]
        number = int(at * (len(lines) - 1))
        try:
            record = json.loads(lines[number])
        except ValueError:
            record = {"event": odd}
        _change(record, steps, odd, drops=drops)
        lines[number] = json.dumps(record).encode()
        path.write_bytes(b"\n".join([*lines[: number + 1], *lines[number + 1 :] * rest, b""]))

    return damage


def _change(record: Any, steps: list[float], odd: object, *, drops: bool) -> None:
    place: Any = record
    for step in steps:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        if not keys:
            return
        key = keys[int(step * len(keys))]
        inner = place[key]
        if step == steps[-1] or not isinstance(inner, dict | list) or not inner:
            if drops:
                del place[key]
            else:
                place[key] = copy.deepcopy(odd)
            return
        place = inner


_DAMAGES = st.one_of(
    _fields(),
    _fields(),
    _bytes(),
    _cut(),
    st.sampled_from([_gone, _folder, _pipe, _zeros]),
    st.sampled_from(["nowhere", ".", "/dev/zero", "cluster.toml", "events.jsonl"]).map(_linked),
)
_PLAN = st.lists(st.tuples(st.floats(0, 0.999), _DAMAGES), min_size=1, max_size=3)
"""Files by their place in the list of all, and what happens to each."""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The folder of a run as it was before its end."""
    with Up("up", str(write(tmp_path, one_task(PROGRAM))), "--json") as up:
        assert up.wait() == 0
        run = runs_home() / up.run_id
    template = tmp_path / "template"
    shutil.move(run, template)
    launched = json.loads((template / "launch.json").read_text())
    (template / "launch.json").write_text(json.dumps({**launched, "machine": LAUNCHER}))
    events = template / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"killing"' in line)
    (template / "whole.jsonl").write_bytes(b"".join(lines))
    events.write_bytes(b"".join(lines[:at]))
    for name in ("forgotten", "freed"):
        (template / name).write_text("localhost\n")
    return template


def damaged(template: Path, ended: bool, plan: list[tuple[float, Damage]]) -> Path:
    """A copy of that folder, damaged."""
    run = runs_home() / "one-20261128-183002-7f3a"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(template, run)
    whole = run / "whole.jsonl"
    if ended:
        whole.replace(run / "events.jsonl")
    else:
        whole.unlink()
        (run / "forgotten").unlink()
    names = sorted(path.name for path in run.iterdir() if path.is_file())
    for place, damage in plan:
        path = run / names[int(place * len(names))]
        if path.is_file() and not path.is_symlink():
            damage(path)
    return run


def test_no_command_that_looks_ends_in_a_traceback(
    template: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is damaged, of a run that has ended or not."""

    @examples(15)
    @given(ended=st.booleans(), plan=_PLAN)
    def look(ended: bool, plan: list[tuple[float, Damage]]) -> None:
        run = damaged(template, ended, plan)
        for words in READERS:
            code = main([run.name if word == "RUN" else word for word in words])
            said = capfd.readouterr()
            assert code in {Exit.SUCCESS, Exit.FAILED, Exit.USAGE, Exit.UNCONFIRMED}, (words, said)
            assert "Traceback" not in said.err and "Error:" not in said.err, (words, said)

    look()


def test_no_kill_ends_in_a_traceback(template: Path) -> None:
    """Whatever is damaged, of a run that another machine has launched."""

    @examples(3)
    @given(plan=_PLAN)
    def kill(plan: list[tuple[float, Damage]]) -> None:
        run = damaged(template, False, plan)
        done = command.run("kill", run.name)
        assert done.returncode in {Exit.SUCCESS, Exit.USAGE, Exit.UNCONFIRMED}, done
        log = run / "launcher.log"
        text = log.read_text(errors="replace") if log.is_file() and not log.is_symlink() else ""
        assert "Traceback" not in done.stderr + done.stdout + text.strip("\0"), (done, text)

    kill()
