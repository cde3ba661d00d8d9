"""Programs that the launcher runs on its own machine."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import warnings

import pytest

from launcher.hosts.ways import LocalTransport
from launcher.subprocesses import start_session
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    """The program has started another one, which holds its pipes, before asyncio knows of it."""
    mark = f"7{os.getpid()}"
    start = start_session("sh", "-c", f"sleep {mark}; true", stdout=subprocess.PIPE)
    starting = asyncio.create_task(start)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    wait_until(lambda: sleeping(mark), "it runs")  # which holds up asyncio
    assert not starting.done()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(starting, PATIENCE)
    wait_until(lambda: not sleeping(mark), "it has been killed")  # both at once: it may end last


def test_a_way_whose_closing_is_cancelled_leaves_nothing() -> None:
    """A launcher that ends while it closes a link: neither the program nor its pipes stay, of
    which the interpreter would complain later."""
    mark = f"8{os.getpid()}"

    async def close() -> None:
        way = await LocalTransport.open(["sleep", mark])
        wait_until(lambda: sleeping(mark), "it runs")
        closing = asyncio.create_task(way.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

    gc.collect()  # what others have left
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        asyncio.run(close())
        gc.collect()
    assert not [str(each.message) for each in complaints if "ransport" in str(each.message)]
    wait_until(lambda: not sleeping(mark), "it has been killed")


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        await start_session("/nowhere")


def sleeping(mark: str) -> list[proc.Process]:
    """The program that the first one has started."""
    return [p for p in proc.scan(saying=mark) if p.alive and p.argv == ("sleep", mark)]
