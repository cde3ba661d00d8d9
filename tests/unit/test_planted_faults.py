"""Faults that are planted to measure the tests (`python -m bench.faults`)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from bench.faults.faults_record import with_notes
from bench.faults.sites import draw, find, found_again

SOURCE = b'''"""A module."""
from __future__ import annotations

LIMIT = 3


def room(used: list[int], name: str) -> int | None:
    """What is left."""
    if not used and name != "all":
        print(f"{name} has nothing")
    return LIMIT - len(used) if len(used) < LIMIT else None


class Box:
    async def close(self) -> None:
        await self.end()
'''


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("launcher/a.py: 3 → 4", b"LIMIT = 4"),
        (
            'launcher/a.py room: not used and name != "all" → not (not used and name != "all")',
            b'    if not (not used and name != "all"):',
        ),
        ("launcher/a.py room: and → or", b'    if not used or name != "all":'),
        ("launcher/a.py room: not → ", b'    if used and name != "all":'),
        ("launcher/a.py room: != → ==", b'    if not used and name == "all":'),
        ('launcher/a.py room: "all" → "allx"', b'    if not used and name != "allx":'),
        ('launcher/a.py room: print(f"{name} has nothing") → pass', b"        pass"),
        (
            "launcher/a.py room: < → <=",
            b"    return LIMIT - len(used) if len(used) <= LIMIT else None",
        ),
        (
            "launcher/a.py room: - → +",
            b"    return LIMIT + len(used) if len(used) < LIMIT else None",
        ),
        ("launcher/a.py Box.close: await self.end() → pass", b"        pass"),
    ],
)
def test_a_fault_changes_one_place(name: str, line: bytes) -> None:
    faults = {fault.name: fault for fault in find("launcher/a.py", SOURCE)}
    planted = faults[name].plant(SOURCE)
    changed = set(planted.splitlines()) - set(SOURCE.splitlines())
    assert changed == {line}


def test_only_what_runs_gets_faults() -> None:
    """Docstrings, annotations and formatted texts get none, and each fault is a program."""
    faults = find("launcher/a.py", SOURCE)
    assert len(faults) == len({fault.name for fault in faults})
    for fault in faults:
        ast.parse(fault.plant(SOURCE))
        assert fault.line not in (1, 2, 8)
    assert [fault.block for fault in faults if fault.kind == "call left out"] == [10, 16]


def test_a_draw_is_the_same_again_and_is_found_in_another_version(tmp_path: Path) -> None:
    for top in ("launcher", "tui", "trainer"):
        (tmp_path / top).mkdir()
        (tmp_path / top / "a.py").write_bytes(SOURCE)
    drawn = [*draw(tmp_path, 8, 1)]
    assert len({fault.name for fault in drawn}) == 8
    assert [*draw(tmp_path, 8, 1)] == drawn
    file = tmp_path / drawn[0].path
    file.write_bytes(b"# longer\n" + file.read_bytes())
    again = found_again(drawn[0], tmp_path)
    assert again is not None and again.line == drawn[0].line + 1
    file.write_text("")
    assert found_again(drawn[0], tmp_path) is None


def test_a_module_notes_each_block_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = {}
    exec(compile(with_notes(SOURCE, "launcher/a.py"), "a.py", "exec", dont_inherit=True), module)
    assert module["__doc__"] == "A module." and module["room"].__doc__ == "What is left."
    assert module["room"]([1], "one") == 2
    assert module["_faults_seen_"] == {9}
    module["room"]([], "one")
    assert module["_faults_seen_"] == {9, 10}
    assert capsys.readouterr().out == "one has nothing\n"
