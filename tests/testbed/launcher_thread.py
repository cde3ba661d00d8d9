"""A launcher on a thread of the test's own process, so that the test can break its parts."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.cluster.file_model import ClusterModel
from launcher.errors import LauncherError
from launcher.process.entry import shell_for
from launcher.process.run_shell import RunShell
from tests.support.patience import PATIENCE


class LauncherThread(LauncherProcess):
    """In the place of a launcher process."""

    def __init__(self) -> None:
        self.link, self._theirs = socket.socketpair()

    def order(self, order: dict[str, Any], lock: int | None = None) -> socket.socket:
        self.shell = shell = shell_for(order, _crash)
        self._theirs.setblocking(False)
        on_close = order.get("on_close", "nothing")
        args = (shell, self._theirs, lock, on_close)
        threading.Thread(target=_run, args=args, name="launcher", daemon=True).start()
        return self.link

    def cancel(self) -> None:
        self.link.close()
        self._theirs.close()

    def forget(self) -> None:
        """Has no file: errors go to the test's own output."""

    @property
    def errors(self) -> str:
        return ""

    @property
    def pid(self) -> int:
        """Nobody stops this one."""
        return 0


def _run(shell: RunShell, link: socket.socket, lock: int | None, on_close: str) -> None:
    with suppress(SystemExit):
        try:
            shell.run(link, lock, on_close=on_close)
        except LauncherError as error:
            link.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        finally:
            link.close()  # as the end of a process does


def _crash(where: str, error: BaseException, story: Iterable[str]) -> NoReturn:
    """Ends the thread: its loop lets nothing of it go on."""
    traceback.print_exception(error)
    raise SystemExit(70)


def launch(cluster: ClusterModel, text: str, **options: Any) -> RunClient:
    """Launches a run on a thread; returns its first client, which knows its tasks."""
    client = RunClient.launch(cluster, text, process=LauncherThread(), **options)
    client.await_state(PATIENCE)
    return client


def launch_file(file: Path, **options: Any) -> RunClient:
    """Launches the run of a cluster file."""
    from launcher.cluster.read import load

    return launch(load(file, for_launch=True), file.read_text(), **options)
