"""Bounds of speed that a change must keep: processor time and memory beside something else's.

Neither is a matter of how busy the machine is. The figures themselves: `make bench`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from textual.app import App

from bench import idle, scale, screens

STARTS = 40


def processor_of_children() -> float:
    """Processor seconds of all programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_panes_take_a_thousand_times_the_lines_of_a_stock_widget() -> None:
    """Given 16 panes and a flood, when each side has had five seconds, then the lines a second of
    processor time are a thousand times those of `RichLog`, and most keys came at once."""
    sides = (screens.our_panes, screens.stock_panes)
    ours, stock = (screens.in_terminal(partial(side, 5.0), 5.0).answer for side in sides)
    ours_rate, stock_rate = (one["lines"] / one["processor"] for one in (ours, stock))
    assert ours_rate > 1000 * stock_rate


def test_a_search_costs_no_more_than_ten_greps() -> None:
    """Given a log of 256 MiB with the hit far away, when it is searched, then the hit is painted,
    and the processor time, without that of the app alone, is at most ten times that of `grep`."""
    for _, line, pattern in screens.SEARCHES:
        with tempfile.TemporaryDirectory() as name:
            child = partial(screens.one_log, Path(name), line, 256 << 20)
            found = screens.in_terminal(child, screens.SEARCH_SECONDS, pattern)
            begin = processor_of_children()
            screens.grep(next(Path(name).rglob("worker-0.log")), pattern)
            beside = processor_of_children() - begin
        with tempfile.TemporaryDirectory() as name:
            alone = screens.in_terminal(
                partial(screens.one_log, Path(name), line, 1), screens.SEARCH_SECONDS
            )
        assert found.hit < screens.SEARCH_SECONDS
        assert found.answer["processor"] - alone.answer["processor"] < 10 * beside


def test_memory_does_not_grow_with_the_logs() -> None:
    """Given 64 tasks, when their logs are ten times as long, then the screen that has shown them
    all needs at most a quarter more, and not thrice what an empty app needs."""
    short, long = (screens.peak_of(partial(screens.long_logs, 64, n)) for n in (10_000, 100_000))
    empty = screens.peak_of(lambda: screens.look_at(App[int](), ("a",)))
    assert long < 1.25 * short
    assert long < 3 * empty


def test_a_quiet_run_costs_next_to_nothing() -> None:
    """Given 16 tasks that sleep, then screen, launcher and agent take in twenty seconds less
    processor time than forty starts of Python, each, and the agent's processes 20 MB."""
    shares, megabytes = idle.shares()
    assert megabytes < 20
    begin = processor_of_children()
    for _ in range(STARTS):
        subprocess.run([sys.executable, "-c", "pass"], check=True)
    starts = processor_of_children() - begin
    used = {name: share * idle.SECONDS / 100 for name, share in shares.items()}
    assert {name: seconds for name, seconds in used.items() if seconds > starts} == {}


def test_the_launchers_memory_grows_with_its_hosts() -> None:
    """Given 16, 64 and 256 hosts, then the launcher's memory grows no faster than their number."""
    rounds = zip(*(scale.on_simulated_hosts(n, 3) for n in (16, 64, 256)), strict=True)
    powers = [scale.exponent(one, "memory") for one in rounds]
    assert median(power for power in powers if power is not None) < 1.25
