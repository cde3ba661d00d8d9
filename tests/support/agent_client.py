"""A launcher as bare as it can be: a bridge process, frames in, frames out, no asyncio.

With it tests speak to a live agent on this machine as the launcher does, and as a launcher
never would.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import secrets
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from launcher.agent import wire
from launcher.agent.folders import local_folder
from launcher.agent.wire import Decoder, RawFrame
from launcher.hosts import bootstrap
from tests.support import launches
from tests.support.patience import PATIENCE
from tests.testbed import proc
from tests.testbed.proc import Process


def hello(token: str, **fields: Any) -> dict[str, Any]:
    """The body of a hello."""
    rules = {"lease": 60.0, "grace": 1.0, "on_disconnect": "stop"}
    body = {"version": wire.VERSION, "token": token, "launcher": "test", "variables": []}
    return {**body, "rules": rules, **fields}


class Client:
    """One channel to the agent of a run; makes the agent when there is none.

    Args:
        run_id: the run; a new one where there is none.
        before: a command in front of the bridge's.
        python: the interpreter of the bridge.
        settings: what differs from a local run with a lease of 60 s and a grace of 1 s.
    """

    def __init__(
        self,
        run_id: str = "",
        *,
        host: str = "here",
        before: Sequence[str] = (),
        python: str = sys.executable,
        **settings: Any,
    ) -> None:
        self.run_id = run_id = run_id or f"t-{os.urandom(4).hex()}"
        self.token = secrets.token_hex(4)
        rules: dict[str, Any] = {"lease": 60.0, "grace": 1.0, "on_disconnect": "stop"}
        rules.update({key: settings.pop(key) for key in rules if key in settings})
        self.rules = rules
        config: dict[str, Any] = {"run_id": run_id, "host": host, "local": False, **settings}
        self.frames: list[RawFrame] = []
        self.logs: dict[int, bytearray] = {}
        self._decoder = wire.Decoder()
        self._ids = itertools.count(1)
        nonce = secrets.token_hex(4)
        launches.note("launcher.agent")
        self.process = subprocess.Popen(
            [*before, *bootstrap.argv(python, run_id, nonce)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout
        marker = bootstrap.marker(nonce) + b"\n" + bootstrap.EVERY_BYTE
        seen = b""
        while not seen.endswith(marker):
            byte = self._from.read(1)
            assert byte, f"the bridge ended: {seen!r}"
            seen += byte
        _, magic = bootstrap.split_magic(seen.removesuffix(marker))
        self.sent = bootstrap.payload({**config, "rules": rules}, magic)
        self.write(self.sent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the channel, as the death of a launcher does."""
        self._to.close()
        self._from.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def pipe_bytes(self) -> int:
        """What the pipe from the agent to us holds when it is full."""
        return fcntl.fcntl(self._from, fcntl.F_GETPIPE_SZ)

    def write(self, data: bytes) -> None:
        """Sends bytes as they are."""
        view = memoryview(data)
        while view:
            view = view[self._to.write(view) or 0 :]

    def send(self, kind: int, body: Mapping[str, Any] | None = None) -> None:
        """Sends a frame."""
        self.write(wire.encode(kind, dict(body or {})))

    def hello(self, **fields: Any) -> dict[str, Any]:
        """Sends a hello, and returns the welcome; answers it, as a launcher does."""
        said = hello(self.token, **{"rules": self.rules, **fields})
        self.send(wire.HELLO, said)
        welcome = self.get(wire.WELCOME)
        if said["rules"] is not None:
            self.send(wire.CREDIT, {"up_to": 0})
        return welcome

    def start(
        self,
        task: str,
        argv: Sequence[object],
        *,
        attempt: int = 1,
        env: Mapping[str, object] | None = None,
        **said: Any,
    ) -> dict[str, Any]:
        """Starts a task, and returns what the agent says of it."""
        self.send(wire.START, self.start_body(task, argv, attempt=attempt, env=env, **said))
        return self.get(wire.STARTED, task=task, attempt=attempt)

    def start_body(
        self,
        task: str,
        argv: Sequence[object],
        *,
        attempt: int = 1,
        env: Mapping[str, object] | None = None,
        **said: Any,
    ) -> dict[str, Any]:
        """The body of a start."""
        tag = f"{self.run_id}/{task}/{attempt};"
        body = {
            "task": task,
            "attempt": attempt,
            "argv": list(argv),
            "env": {**(env or {}), "TFMUX_TASK": tag},
            "cwd": "/",
            "log_limit": 1 << 40,
            "port": None,
            "pty": False,
        }
        return {**body, **said}

    def python(self, task: str, script: str, *words: str, **said: Any) -> dict[str, Any]:
        """Starts a task that runs a Python script."""
        return self.start(task, [sys.executable, "-u", "-c", script, *words], **said)

    def kill(
        self, tasks: Sequence[str] | None = None, grace: float = 0.0, *, final: bool = False
    ) -> dict[str, Any]:
        """Kills tasks, or everything, and returns the receipt."""
        ident = next(self._ids)
        self.send(wire.KILL, {"id": ident, "tasks": tasks, "grace": grace, "final": final})
        return self.until(
            lambda f: f.type == wire.RECEIPT and ident in f.json()["ids"], "the receipt"
        ).json()

    def ask(self, kind: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a question, and returns its reply."""
        ident = next(self._ids)
        self.send(kind, {**body, "id": ident})
        return self.get(wire.REPLY, id=ident)

    def follow(self, task: str, number: int = 0, start: int = 0) -> None:
        """Opens a task's log from an offset, with credit for all of it."""
        self.logs[number] = bytearray()
        self.send(wire.READ_LOG, {"task": task, "number": number, "offset": start})
        self.send(wire.CREDIT, {"up_to": 1 << 40})

    def leave(self) -> None:
        """Says that the run is over, and waits until the agent has let go."""
        self.send(wire.LEAVE, {"remove": True})
        self.process.wait(PATIENCE)
        self.close()

    def get(self, kind: int, **fields: Any) -> dict[str, Any]:
        """The first frame of a kind (with these fields) that nobody has taken yet, as JSON."""

        def fits(frame: RawFrame) -> bool:
            if frame.type != kind:
                return False
            body = frame.json()
            return all(body.get(key) == value for key, value in fields.items())

        return self.until(fits, f"{wire.NAMES[kind]} {fields}").json()

    def until(
        self, fits: Callable[[RawFrame], bool], what: str, timeout: float = PATIENCE
    ) -> RawFrame:
        """Takes the first frame that fits, and reads until there is one."""
        deadline = time.monotonic() + timeout
        while True:
            for at, frame in enumerate(self.frames):
                if fits(frame):
                    return self.frames.pop(at)
            left = deadline - time.monotonic()
            assert left > 0, f"no {what} within {timeout} s"
            assert self.receive(left), f"the channel ended without {what}"

    def log_until(self, text: bytes, number: int = 0, timeout: float = PATIENCE) -> bytes:
        """Reads until a log holds a text; returns the log."""
        deadline = time.monotonic() + timeout
        while text not in self.logs[number]:
            left = deadline - time.monotonic()
            assert left > 0 and self.receive(left), f"no {text!r} in {bytes(self.logs[number])!r}"
        return bytes(self.logs[number])

    def receive(self, timeout: float = PATIENCE) -> bool:
        """Takes what has come; False when the channel has ended."""
        ready, _, _ = select.select([self._from], [], [], timeout)
        if not ready:
            return True
        data = os.read(self._from.fileno(), 1 << 16)
        for frame in self._decoder.feed(data):
            if frame.type != wire.DATA:
                self.frames.append(frame)
                continue
            number, offset, chunk = frame.data()
            log = self.logs[number]
            assert offset == len(log), f"a gap or a repeat at {offset}"
            log += chunk
        return bool(data)

    def everything(self) -> list[RawFrame]:
        """All frames until the channel ends."""
        while self.receive():
            continue
        return self.frames


def family(run_id: str) -> list[Process]:
    """The run's living processes on this machine as the tests see them: watchdog, agent,
    bridges and tasks."""
    return [
        process
        for process in proc.scan(having=run_id)
        if process.alive and (process.tag or "").split("/")[0].rstrip(";") == run_id
    ]


def watchdog_and_agent(run_id: str) -> tuple[Process, Process]:
    """The run's watchdog and its child, the agent."""
    tagged = {p.pid: p for p in family(run_id) if "TFMUX_TASK" not in p.environ}
    (agent,) = [p for p in tagged.values() if p.session != p.pid and p.session == p.ppid]
    return tagged[agent.ppid], agent


def state_folder(run_id: str, host: str = "here") -> Path:
    """Where the agent keeps a run on this machine."""
    return Path(os.environ["XDG_STATE_HOME"], "tfmux", f"{run_id}.{host}")


def socket_path(run_id: str, host: str = "here") -> str:
    """Where the run's agent listens on this machine."""
    digest = hashlib.sha256(f"{run_id}.{host}".encode()).hexdigest()[:24]
    return f"{local_folder()}/{digest}.sock"


@contextmanager
def raw_channel(run_id: str) -> Iterator[socket.socket]:
    """A channel to a living agent without a bridge: what is written goes to the agent as it
    is."""
    ours, theirs = socket.socketpair()
    with ours, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(socket_path(run_id))
        rights = struct.pack("2i", theirs.fileno(), theirs.fileno())
        link.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        theirs.close()
        ours.settimeout(PATIENCE)
        yield ours


def sleepers(mark: str) -> list[Process]:
    """Living processes of this machine whose last argument is `mark`."""
    return [p for p in proc.scan(saying=mark) if p.alive and p.argv[-1:] == (mark,)]


@contextmanager
def unattended_run() -> Iterator[Client]:
    """A run with one task that has lost its launcher; it is ended afterwards."""
    with Client() as channel:
        channel.hello()
        channel.start("w:0", ["sleep", "1000"])
    yield channel
    with Client(channel.run_id) as last:
        last.hello()
        last.kill()
        last.leave()


def decode(*chunks: bytes) -> list[RawFrame]:
    decoder = Decoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


def talk(client: Client, *said: bytes) -> list[RawFrame]:
    """Says something on a channel of its own; returns what is answered until the end."""
    with raw_channel(client.run_id) as channel:
        answers = b""
        channel.sendall(b"".join(said))
        with suppress(OSError):  # it has hung up already, which is its right
            channel.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # with more of ours unread
            while data := channel.recv(1 << 16):
                answers += data
        return decode(answers)


def answer_to(client: Client, *said: bytes) -> RawFrame:
    """Says something on a channel of its own; returns the first answer."""
    with raw_channel(client.run_id) as channel:
        channel.sendall(b"".join(said))
        decoder = Decoder()
        while data := channel.recv(1 << 16):
            for frame in decoder.feed(data):
                return frame
    raise AssertionError("no answer")


def asked(client: Client) -> bytes:
    """A query's HELLO."""
    return wire.encode(wire.HELLO, hello("", rules=None))
