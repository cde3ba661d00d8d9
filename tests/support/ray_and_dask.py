"""Stand-in of `ray` and `dask` with their command lines: servers that listen until TERM, nodes that
join them, and a client library that finds the server where the environment says."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def _serve(port: str, joins: str = "") -> None:
    """Joins the server of a cluster, and serves until a signal ends this process."""
    server = socket.create_server(("localhost", int(port)))
    joined = _connected(joins) if joins else None
    print("Ray runtime started.", flush=True)
    signal.sigwait({signal.SIGTERM})
    print("bye", server.getsockname(), joined and joined.getpeername(), flush=True)


def main() -> None:
    """Acts as `ray start --block …`, `dask scheduler …` or `dask worker …`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    match [word for word in sys.argv[1:] if "=" not in word]:
        case ["start", "--block", *_]:
            _serve(options.get("--port", "0"), options.get("--address", ""))
        case ["scheduler", *_]:
            _serve(options["--port"])
        case ["worker", address, *_]:
            _serve(options["--worker-port"], address)
        case words:
            sys.exit(f"unknown command: {words}")


class Remote:
    """A function of `ray.remote`."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self.remote = function


def init() -> None:
    """`ray.init()`: connects to the cluster."""
    _connected(os.environ["RAY_ADDRESS"]).close()


def get(values: list[int]) -> list[int]:
    """`ray.get()`."""
    return values


class Client:
    """`dask.distributed.Client()`."""

    def __enter__(self) -> Client:
        _connected(os.environ["DASK_SCHEDULER_ADDRESS"]).close()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def scheduler_info(self) -> dict[str, Any]:
        """The workers that have joined."""
        return {"workers": {}}

    def map(self, function: Callable[[int], int], values: Iterable[int]) -> list[int]:
        """Computes at once."""
        return [function(value) for value in values]

    def gather(self, values: list[int]) -> list[int]:
        """What has been computed."""
        return values


remote = Remote
if __name__ == "__main__":
    main()
