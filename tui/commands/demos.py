"""`tfmux demo`: a ready cluster file, launched, or a list of them."""

from __future__ import annotations

import argparse
import sys

from tui import demos
from tui.commands import launch
from tui.exits import Exit


def demo(arguments: argparse.Namespace) -> int:
    """Launches a demo; returns the run's exit code."""
    return launch.up(demos.find(arguments.name), arguments)


def show_list() -> int:
    """Prints a line a demo: its name, and what it shows."""
    wide = max(len(name) for name in demos.names())
    for name in demos.names():
        sys.stdout.write(f"{name:<{wide}}  {demos.about(demos.find(name))}\n")
    return Exit.SUCCESS
