"""Carries out what a finding about shell text advises: the file that a person would then have."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(r"(?:^write | and )(?P<key>[A-Za-z_]\w*) = ")
_REMOVED = re.compile(r" and remove (?P<name>\w+) from env in \[(?P<table>[\w.]+)\]$")
_PLACE = re.compile(r"(?: in (?P<env>env))? in \[(?P<table>[\w.]+)\]$")


def carried_out(file: dict[str, Any], advice: str) -> None:
    """Changes the tables of a cluster file as the advice says, and nothing else."""
    if removed := _REMOVED.search(advice):
        del _table(file, removed["table"])["env"][removed["name"]]
        advice = advice[: removed.start()]
    place = _PLACE.search(advice)
    assert place is not None, advice
    values = advice[: place.start()]
    starts = [match.start("key") for match in _STEP.finditer(values)]
    for start, end in zip(starts, [*starts[1:], len(values) + len(" and ")], strict=True):
        made = tomllib.loads(
            values[start : end - len(" and ")] if end <= len(values) else values[start:]
        )
        table = _table(file, place["table"])
        if place["env"]:
            table = table.setdefault("env", {})
        for key, value in made.items():
            if key == "env" and isinstance(value, Mapping):
                table.setdefault("env", {}).update(value)
            else:
                table[key] = value


def _table(file: dict[str, Any], name: str) -> dict[str, Any]:
    for part in name.split("."):
        file = file.setdefault(part, {})
    return file
