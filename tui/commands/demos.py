"""`tfmux demo`: a ready cluster file, launched, or a list of them."""

from __future__ import annotations

import argparse
import sys

from tui import demos
from tui.commands import launch
from tui.exits import Exit


def demo(arguments: argparse.Namespace) -> int:
    """Launches a demo and returns the run's exit code, or prints a line for each demo."""
    if not arguments.list:
        arguments.file = demos.find(arguments.name)
        demos.check_machine()
        return launch.up(arguments)
    wide = max(len(name) for name in demos.names())
    for name in demos.names():
        sys.stdout.write(f"{name:<{wide}}  {demos.about(demos.find(name))}\n")
    return Exit.SUCCESS
