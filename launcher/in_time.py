"""Imports of what a process needs late, in time: an upgrade replaces the program's files under a
run that goes on, and an uninstallation takes them away.

What a module imports where it uses it comes from the files of that moment: none, or those of
another version. Where that would be at a run's end, days later, its process imports it at the
beginning, beside its work, which waits for nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module


def import_in_time(*modules: str) -> None:
    """Imports modules, one after the other, on a thread of its own."""
    load_in_time(*(partial(import_module, name) for name in modules))


def load_in_time(*steps: Callable[[], object]) -> None:
    """Does what reads the program's files, step by step, on a thread of its own."""

    def load() -> None:
        for step in steps:
            with suppress(Exception):  # whoever needs it says what is wrong
                step()

    with suppress(RuntimeError):  # this machine starts no more threads
        threading.Thread(target=load, name="in time", daemon=True).start()
