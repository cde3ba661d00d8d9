"""A launcher on a thread of the test's own process, so that the test can break its parts."""

from __future__ import annotations

import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

from launcher.cluster import ClusterModel
from launcher.session.client import RunClient
from launcher.session.launcher_process import LauncherProcess
from launcher.session.process import launcher_for


class LauncherThread(LauncherProcess):
    """In the place of a launcher process."""

    def __init__(self) -> None:
        self.link, self._theirs = socket.socketpair()

    def order(self, order: dict[str, Any], lock: int | None = None) -> socket.socket:
        self.launcher = launcher = launcher_for(order)
        self._theirs.setblocking(False)
        run = partial(launcher.run, on_close=order.get("on_close", "nothing"))
        threading.Thread(
            target=run, args=(self._theirs, lock), name="launcher", daemon=True
        ).start()
        return self.link

    def cancel(self) -> None:
        self.link.close()
        self._theirs.close()

    @property
    def errors(self) -> str:
        return ""


def launch(cluster: ClusterModel, text: str, **options: Any) -> RunClient:
    """Launches a run on a thread; returns its first client."""
    return RunClient.launch(cluster, text, process=LauncherThread(), **options)


def launch_file(file: Path, **options: Any) -> RunClient:
    """The same with a file."""
    from launcher.cluster import load

    return launch(load(file, for_launch=True), file.read_text(), **options)
