"""Tests that meet a fault, by a record of the suite, in the order in which they are tried."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.faults.sites import Fault

QUICK = ("unit", "screens", "long")
"""Folders of tests that start no process."""


@dataclass(frozen=True)
class Test:
    """A test, the part of the suite that has it, and the seconds that it took."""

    name: str
    part: str
    seconds: float

    @property
    def tier(self) -> str:
        """Its folder below `tests`."""
        return self.name.split("/")[1]

    @property
    def quick(self) -> bool:
        """Whether it starts no process."""
        return self.tier in QUICK


class Covering:
    """The tests of each block of the program; a test that failed where nothing is wrong is none."""

    def __init__(self, records: Path, tests: Path) -> None:
        self._of_block: dict[str, set[Test]] = defaultdict(set)
        self._of_module: dict[str, dict[Test, int]] = defaultdict(lambda: defaultdict(int))
        self._texts: dict[str, str] = {}
        self._tests = tests
        told = [json.loads(line) for line in (records / "tests.jsonl").open()]
        by_hash = {one["hits"]: one for one in told if one["passed"]}
        for line in {*(records / "hits").open()}:
            name, block = line.split()
            if one := by_hash.get(name):
                quick = one["test"].split("/")[1] in QUICK
                test = Test(one["test"], one["part"], one["processor" if quick else "wall"])
                self._of_block[block].add(test)
                self._of_module[block.rpartition(":")[0]][test] += 1

    def of(self, fault: Fault) -> list[Test]:
        """Return the tests that run its block, of a fault at the level of a module all that run
        something in that: first those whose file names the module, and of these the shortest."""
        at_import = self._of_module[fault.path]
        tests = self._of_block[f"{fault.path}:{fault.block}"] if fault.block else at_import
        return sorted(tests, key=lambda test: (not self._names(test, fault), test.seconds))

    def _names(self, test: Test, fault: Fault) -> bool:
        return self.files_name(test.name.partition("::")[0], fault)

    def files_name(self, file: str, fault: Fault) -> bool:
        """Return whether a file of tests has the name of the fault's module, or imports it."""
        if file not in self._texts:
            path = self._tests / file
            self._texts[file] = path.read_text() if path.exists() else ""
        module = Path(fault.path)
        stem = module.parent.name if module.stem == "__init__" else module.stem
        word = rf"\b{re.escape(stem)}\b"
        return stem in Path(file).stem or bool(re.search(word, self._texts[file]))


def within(tests: list[Test], seconds: float) -> list[Test]:
    """Return the first tests that take so long together; one in any case."""
    return [*_within(tests, seconds)]


def _within(tests: list[Test], seconds: float) -> Iterator[Test]:
    for test in tests:
        yield test
        seconds -= test.seconds
        if seconds < 0:
            return
