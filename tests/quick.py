"""`pytest --quick`: the tests that need no process, and so no host, SSH, terminal, root or
TensorFlow, and that try no hundreds of examples.

Which they are is read off the code of each test and of its fixtures, and of all that these use
of the tests' own modules. What a test starts through the program itself does not show there: it
is marked `processes`.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import settings

_STARTING = ("tests.testbed.", "tests.command", "tests.trainer.tasks")
_LOOKING = ("tests.testbed.guard", "tests.testbed.proc", "tests.quick")
_MARKERS = ("testbed", "processes", "slow", "tmux")
_EXAMPLES = 100
_TENSORFLOW = re.compile(r"^import tensorflow", re.MULTILINE)


@pytest.fixture(autouse=True)
def no_process_started(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail a test of `--quick` that starts a process after all, or imports TensorFlow."""
    if not request.config.getoption("quick"):
        yield
        return
    started: list[object] = []
    start: Any = subprocess.Popen.__init__

    def noted(self: subprocess.Popen[bytes], args: object, *others: Any, **options: Any) -> None:
        started.append(args)
        start(self, args, *others, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    loaded = "tensorflow" in sys.modules
    yield
    if started:
        pytest.fail(f"mark it `processes`: it started {started}", pytrace=False)
    if "tensorflow" in sys.modules and not loaded:
        pytest.fail("mark it `slow`: it imported TensorFlow", pytrace=False)


def is_quick_file(path: Path) -> bool:
    """Whether reading a test module is quick; importing TensorFlow takes seconds."""
    return _TENSORFLOW.search(path.read_text()) is None


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is quick."""
    assert isinstance(item, pytest.Function)
    if any(item.get_closest_marker(name) for name in _MARKERS):
        return False
    tries = getattr(item.function, "_hypothesis_internal_use_settings", None)
    if isinstance(tries, settings) and tries.max_examples > _EXAMPLES:
        return False
    fixtures = [each[-1].func for each in item._fixtureinfo.name2fixturedefs.values()]
    seen: set[int] = set()
    return not any(_starts_processes(each, seen) for each in (item.function, *fixtures))


def _starts_processes(value: object, seen: set[int]) -> bool:
    """Whether a function, class or module of the tests, or what it uses, starts a process."""
    if id(value) in seen:
        return False
    seen.add(id(value))
    if value is subprocess:
        return True
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    if not isinstance(name, str) or not name.startswith("tests.") or name in _LOOKING:
        return False
    if name.startswith(_STARTING):
        return True
    return any(_starts_processes(each, seen) for each in _used_by(value))


def _used_by(value: object) -> Iterator[object]:
    """What the code of a function, or of a class's methods, names."""
    if isinstance(value, type):
        for each in value.__mro__:
            yield from vars(each).values()
    elif isinstance(value, FunctionType):
        function: Any = inspect.unwrap(value)
        names = set(_names(function.__code__))
        for used in (function.__globals__.get(name) for name in names):
            yield used
            if isinstance(used, ModuleType):
                yield from (vars(used).get(name) for name in names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
