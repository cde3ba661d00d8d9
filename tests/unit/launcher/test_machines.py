"""The machine that has launched a run, and whether that is this one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from launcher.store.launch_machine import Machine

HERE = Machine.this()
DAY = 86_400.0
OTHERS = {
    "another boot of another machine": replace(HERE, boot="x", name="other", ident="other"),
    "another machine of the same image": replace(HERE, boot="x", name="other"),
    "another machine of the same name": replace(HERE, boot="x", ident="other"),
    "another container of this machine": replace(HERE, pids=HERE.pids + 1),
    "another machine of the same name and image": replace(HERE, boot="x"),
    "nobody knows which": Machine(),
}

DAMAGED = [{**HERE.record(), **lie} for lie in ({"boot": 7}, {"pids": "x"}, {"time": None})]


@pytest.mark.parametrize("name", OTHERS)
def test_another_machine_is_not_this_one(name: str) -> None:
    """One that was up when the run was launched has not booted since, whatever it is called."""
    assert not OTHERS[name].is_here


def test_this_machine_is_this_one() -> None:
    """Also by another host name, and after a boot."""
    assert Machine.parse(json.loads(json.dumps(HERE.record()))) == HERE
    assert HERE.is_here and replace(HERE, name="renamed").is_here
    assert replace(HERE, boot="the boot before", pids=7, time=HERE.time - 10_000 * DAY).is_here


@pytest.mark.parametrize(
    "values",
    [None, 7, "name", [], {}, {"name": "x"}, *DAMAGED],
    ids=range(6 + len(DAMAGED)),
)
def test_damage_is_an_unknown_machine(values: object) -> None:
    """Which is not this one."""
    assert not Machine.parse(values).is_here
