"""`pytest --quick`: the tests that need no process, and so no host, SSH, terminal, root or
TensorFlow, and that take less than a quarter of a second of a processor's time.

Which they are is read off the code of each test and of its fixtures, and of all that these use
of the tests' own modules. What a test starts through the program itself does not show there: it
is marked `processes`; what takes longer is marked `large`. A quick test that does either fails.
"""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import strategies

_STARTING = ("tests.testbed.", "tests.command", "tests.forked", "tests.trainer.tasks")
_LOOKING = ("tests.testbed.guard", "tests.testbed.proc", "tests.quick")
_MARKERS = ("testbed", "processes", "slow", "soak", "tmux", "large")
_SECONDS = 0.25
_SLOW = 6.0
"""How much longer the same work may take on the slowest and busiest machine."""
_TRAINER = Path(__file__).parent.parent / "trainer"
_TENSORFLOW = re.compile(r"^import tensorflow", re.MULTILINE)
_OF_TRAINER = re.compile(r"^from trainer(?:\.(\w+))?[\w.]* import (.*)", re.MULTILINE)


def refuse_tensorflow() -> None:
    """Make its import an error: it takes seconds, and who has not installed it runs these tests."""
    sys.modules["tensorflow"] = None  # type: ignore[assignment]


@contextmanager
def no_process_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a quick test that starts a process after all."""
    started: list[object] = []
    start: Any = subprocess.Popen.__init__

    def noted(self: subprocess.Popen[bytes], args: object, *others: Any, **options: Any) -> None:
        started.append(args)
        start(self, args, *others, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    yield
    if started:
        pytest.fail(f"mark it `processes`: it started {started}", pytrace=False)


def prepare_random_text() -> None:
    """Make hypothesis's table of all characters now: it takes a second of the processor's time
    where no earlier run has kept it, and would be counted as the time of one test."""
    strategies.text().validate()


@contextmanager
def no_time_spent() -> Iterator[None]:
    """Fail a quick test that takes too long, on the processor's clock."""
    before = time.process_time()
    yield
    seconds = time.process_time() - before
    if seconds > _SECONDS * _SLOW:
        pytest.fail(
            f"mark it `large`: it took {seconds:.2f} s of processor time, and a quick test takes "
            f"at most {_SECONDS} s",
            pytrace=False,
        )


@functools.cache
def is_quick_file(path: Path) -> bool:
    """Whether a test module imports TensorFlow neither itself nor with a module of the trainer."""
    text = path.read_text()
    if _TENSORFLOW.search(text):
        return False
    used = {
        name for match in _OF_TRAINER.findall(text) for name in re.findall(r"\w+", " ".join(match))
    }
    modules = (_TRAINER / f"{name}.py" for name in used)
    return not any(each.is_file() and _TENSORFLOW.search(each.read_text()) for each in modules)


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is quick."""
    assert isinstance(item, pytest.Function)
    if any(item.get_closest_marker(name) for name in _MARKERS):
        return False
    if not item.function.__module__.startswith("tests.") or not is_quick_file(item.path):
        return False  # what a test of the tests has written, and what imports TensorFlow
    fixtures = [each[-1].func for each in item._fixtureinfo.name2fixturedefs.values()]
    return not any(_needs_processes(each) for each in (item.function, *fixtures))


@functools.cache
def _needs_processes(function: Callable[..., object]) -> bool:
    """Whether a test or a fixture, or what it uses, starts a process."""
    return _starts_processes(function, set())


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
