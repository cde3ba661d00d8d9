"""A task that takes its time to save after TERM, and the run that it is in."""

from __future__ import annotations

from pathlib import Path

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import one_task
from tests.support.command import write
from tests.support.patience import PATIENCE, wait_until

SAVES = """
import os, signal, time

def save(*_):
    while not os.path.exists('go on'):
        print('saves', flush=True)
        time.sleep(0.02)
    time.sleep(0.5)
    open('saved', 'w').close()
    os._exit(0)

signal.signal(signal.SIGTERM, save)
while True:
    print('trains', flush=True)
    time.sleep(0.02)
"""


def cluster(folder: Path, script: str = SAVES, settings: str = "") -> Path:
    """A task that takes its time after TERM, and is given it."""
    return write(folder, one_task(script, settings=settings).replace("grace = 2.0", "grace = 600"))


def is_killed(folder: RunFolder) -> bool:
    """The launcher has been told of a kill."""
    return '"killing"' in folder.events.read_text()


def await_lines(folder: RunFolder, count: int) -> None:
    """Waits for so many more lines of the task: each tells a client that nobody reads."""
    log = folder.path / "worker-0.log"
    begun = log.read_bytes().count(b"\n")
    wait_until(lambda: log.read_bytes().count(b"\n") >= begun + count, "later lines", PATIENCE)


def only_run() -> RunFolder:
    (folder,) = RunFolder.all()
    return folder
