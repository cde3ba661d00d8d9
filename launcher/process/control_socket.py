"""Control socket of a run: other processes send commands and receive its state (JSON lines over a
Unix socket that only this user can open).

A client begins with `{"command": "subscribe", "on_close": "kill" | "nothing", "prompts": bool,
"screen": bool}`: what its disappearance means, whether it can answer SSH prompts, and whether it
is what keeps the run from being in the background. It then receives

    {"changed": […]}    the records of the run (`store.stream`): all first, then those that changed
    {"prompts": […]}    the prompts that wait for an answer
    {"error": "…"}      the launcher could not start; it ends
    {"stacks": {…}, "id": 7}   the answer to its `stacks`; `error` in the place of `stacks` where
                           there is none
    {"masked": "…", "id": 8, "unknown": ["NAME"], "short": ["NAME"]}
                           the answer to its `mask`
    {"finished": true}  the run has ended and its hosts are released; nothing follows
    {"disconnected": "…"}  it did not subscribe in time, sent what is no command, or had been silent
                           longest when one client too many came; nothing follows

and may send

    {"command": "kill_all", "by_person": true, "force": false}
                            with the grace, however often it comes; with `force` KILL at once
    {"command": "restart", "task": "worker:1", "hard": false}
    {"command": "signal", "task": "worker:1", "name": "TERM" | "KILL"}
    {"command": "answer", "id": 3, "text": "yes"}
    {"command": "stacks", "id": 7, "tasks": ["worker:1"] | null}
                            where these tasks stand, or all; its answer comes within some seconds
    {"command": "mask", "id": 8, "text": "…"}
                            a text without the values of variables that tasks get from here
    {"command": "detach"}   the run goes on in the background; from now on the disappearance of
                            this client means nothing

Neither log text nor events pass through here: clients read the files. A client that does not read
misses intermediate states and delays nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, NoReturn, Protocol

from ..history.control import LONGEST_TEXT
from ..hosts.auth_prompt import PROMPTS, PendingPrompt
from ..ids import TaskId
from ..run import events as ev
from ..run.stack_groups import Stacks, stacks_type
from ..run.state import RunData
from ..run.views import Record, Views
from ..secret_values import SecretValues
from ..store.runs import socket_path
from ..store.stream import plain
from .prompt_queue import PromptQueue

_FULL_BYTES = 64 * 1024
"""A client with more unread bytes is sent nothing until it has read them. The last message that
it got may be longer: the whole state of thousands of tasks."""


class Outbox:
    """Messages to one client; only its system's buffers and a little more wait for it to read."""

    def __init__(self, writer: asyncio.StreamWriter, on_read: Callable[[], None]) -> None:
        """`on_read` is called when there is room again after there was none."""
        self._writer = writer
        self._on_read = on_read
        self._waiting: asyncio.Task[None] | None = None
        writer.transport.set_write_buffer_limits(_FULL_BYTES)

    def has_room(self) -> bool:
        """Whether something may be sent."""
        if self._writer.transport.get_write_buffer_size() <= _FULL_BYTES:
            return True
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._await_reader(), name="slow client")
        return False

    async def finish(self, last: bytes) -> None:
        """Sends the last message, room or not; returns when the client has taken all bytes, or has
        gone."""
        with contextlib.suppress(OSError):
            self._writer.write(last)
            self._writer.transport.set_write_buffer_limits(0)
            await self._writer.drain()

    def abort(self) -> None:
        """Closes the connection; what the client has not read is dropped."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._writer.transport.abort()

    async def _await_reader(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._waiting = None
        self._on_read()


def line_of(message: dict[str, Any]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\n"


_LONGEST_COMMAND = 64 * 1024
_MOST_CLIENTS = 64
_MOST_COMMANDS = 100
"""A second, of one client: more is no person's doing. Answers that were waited for are not
counted: one key may answer for all hosts."""
_SECONDS_BETWEEN = 1 / 30
_MERGE_SECONDS = 0.005
"""Changes that come together are sent together, but for those that are sent at once."""
_SUBSCRIBE_SECONDS = 10.0
"""A connection that has not subscribed by then is closed: too many of them lock everybody out."""
_FLUSH_SECONDS = 1.0
_MOST_LOOKS = 4
"""Questions for stacks of one client whose answers it has not got."""
_CREDENTIALS = struct.Struct("3i")
_BSD_CREDENTIALS = struct.Struct("=IIh2x16I")
_SOL_LOCAL = 0


def peer_uid(link: socket.socket) -> int:
    """The user whose process is at the other end of a Unix socket, as the kernel says. Where it
    says nothing, this user: the folder of the sockets is open to nobody else."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(raw)[1])
    if hasattr(socket, "LOCAL_PEERCRED"):  # macOS and the BSDs: `struct xucred`
        raw = link.getsockopt(_SOL_LOCAL, socket.LOCAL_PEERCRED, _BSD_CREDENTIALS.size)
        return int(_BSD_CREDENTIALS.unpack(raw)[1])
    return os.getuid()


class ServedRun(Protocol):
    """A run, as its clients may use it."""

    data: RunData
    secrets: SecretValues

    def command(self, event: ev.Event) -> None:
        """Carries out what a client wants.

        Raises:
            KeyError: the run has no such task.
        """

    async def take_stacks(self, tasks: tuple[TaskId, ...] | None) -> Stacks:
        """Returns where these tasks are, or all.

        Raises:
            KeyError: the run has no such task.
        """

    def refresh(self) -> Views:
        """The views, with figures that change with the time."""

    def crash(self, where: str, error: BaseException) -> NoReturn:
        """Ends the launcher for what nobody expected."""


class ControlSocket:
    """Serves the clients of one run. All of it belongs to the launcher's loop."""

    def __init__(self, run: ServedRun, run_id: str, prompts: PromptQueue) -> None:
        self._run, self._run_id = run, run_id
        self._prompts = prompts
        self._prompts.listener = self.send_prompts
        self._clients: dict[_Client, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        """A state is sent as soon as the loop gets to it."""
        self._prompts_due = False
        self._not_before = 0.0
        """Time before which no state is sent, by the loop's clock."""
        self._finished = False
        self._begun = asyncio.Event()
        """A client has subscribed."""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accepts clients while it is entered. The socket that a killed launcher has left is
        replaced."""
        path = socket_path(self._run_id)
        new = path.with_suffix(f".{os.getpid()}")
        new.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, new, limit=_LONGEST_COMMAND)
        new.chmod(0o600)
        new.rename(path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def add(self, link: socket.socket, on_close: str) -> None:
        """Serves a client whose connection is there already, and what its end means known."""
        reader, writer = await asyncio.open_unix_connection(sock=link, limit=_LONGEST_COMMAND)
        client = _Client(writer, self._catch_up, kills=on_close == "kill")
        self._begin(client, reader)

    def changed(self, at_once: bool = False) -> None:
        """Sends what has changed, at most 30 times a second; `at_once` is for what a kill brings
        about: a client that hears nothing of it takes the launcher for dead."""
        if self._finished:
            return
        loop = asyncio.get_running_loop()
        if at_once and not self._soon:  # before what thousands of hosts say to the kill
            self._soon = True
            loop.call_soon(self._send_changes)
        elif self._timer is None:
            when = max(loop.time() + _MERGE_SECONDS, self._not_before)
            self._timer = loop.call_at(when, self._send_changes)

    def send_prompts(self) -> None:
        """Sends the pending prompts to the clients that can answer them; those of many hosts, and
        answers to them, come together."""
        if not self._prompts_due:
            self._prompts_due = True
            asyncio.get_running_loop().call_later(_MERGE_SECONDS, self._send_prompts)

    def _send_prompts(self) -> None:
        self._prompts_due = False
        pending, line = self._prompts.pending, b""
        for client in self._clients:
            if client.responds and client.prompts != pending and client.outbox.has_room():
                line = line or line_of({"prompts": PROMPTS.dump_python(pending, mode="json")})
                client.writer.write(line)
                client.prompts = pending

    async def finish(self) -> None:
        """Sends the last state and says that nothing follows; also to a client that has connected
        and is about to subscribe, where the run ends at its beginning."""
        self._finished = True
        if self._clients:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._begun.wait()
        last = _changed(self._run.data.records()) + line_of({"finished": True})
        clients = [client for client in self._clients if client.subscribed]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await asyncio.gather(*(client.outbox.finish(last) for client in clients))
        for client in clients:
            client.outbox.abort()

    # --- one client -----------------------------------------------------------------------

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer, self._catch_up)
        if not client.is_ours:
            writer.transport.abort()
            return
        if len(self._clients) >= _MOST_CLIENTS:
            self._displace(min(self._clients, key=lambda one: one.heard))
        task = self._begin(client, reader)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_SUBSCRIBE_SECONDS, client.close_unsubscribed)
        task.add_done_callback(lambda _: timer.cancel())

    def _displace(self, client: _Client) -> None:
        """Ends the connection of a client that has not gone: the run is not killed for it."""
        client.kills = False
        del self._clients[client]
        client.writer.write(line_of({"disconnected": f"displaced: {_MOST_CLIENTS} others came"}))
        client.writer.transport.abort()

    def _begin(self, client: _Client, reader: asyncio.StreamReader) -> asyncio.Task[None]:
        task = asyncio.create_task(self._listen(client, reader), name="client")
        self._clients[client] = task
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._run.crash("client", error)

    async def _listen(self, client: _Client, reader: asyncio.StreamReader) -> None:
        count, since = 0, time.monotonic()
        try:
            while line := await _read_line(reader):
                client.heard = time.monotonic()
                count += not self._dispatch(client, json.loads(line))
                if count > _MOST_COMMANDS:
                    if time.monotonic() - since < 1.0:
                        raise ValueError(f"more than {_MOST_COMMANDS} commands a second")
                    count, since = 0, time.monotonic()
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            client.writer.write(line_of({"disconnected": f"not accepted: {error}"}))
        except OSError:
            pass  # it has gone
        finally:
            self._clients.pop(client, None)
            self._begun.set()
            for looking in client.looks:
                looking.cancel()
            if client.subscribed:
                self._count(client, -1)
            client.outbox.abort()
            if client.kills and not self._finished:
                self._run.command(ev.KillAll(time.time(), by_person=False))
            elif client.holds and not self._finished and not self._held:
                self._run.command(ev.Background(time.time(), True))

    def _dispatch(self, client: _Client, message: dict[str, Any]) -> bool:
        """Carries a command out; True for the answer to a prompt that waited for it."""
        match message:
            case {"command": "subscribe", "on_close": "kill" | "nothing" as on_close}:
                self._subscribe(client, message, on_close)
            case {"command": "detach"}:
                client.kills = client.holds = False
                if not self._run.data.run.background:
                    self._run.command(ev.Background(time.time(), True))
            case {"command": "kill_all", "by_person": bool(by_person)}:
                self._run.command(ev.KillAll(time.time(), by_person, bool(message.get("force"))))
            case {"command": "restart", "task": str(task), "hard": bool(hard)}:
                self._run.command(ev.Restart(time.time(), TaskId.parse(task), hard))
            case {"command": "signal", "task": str(task), "name": "TERM" | "KILL" as name}:
                self._run.command(ev.SignalTask(time.time(), TaskId.parse(task), name))
            case {"command": "answer", "id": int(ident), "text": str() | None as text}:
                return self._prompts.answer(ident, text)
            case {"command": "stacks", "id": int(ident), "tasks": None | list() as names}:
                tasks = None if names is None else tuple(map(TaskId.parse, names))
                self._take_stacks(client, ident, tasks)
            case {"command": "mask", "id": int(ident), "text": str(text)}:
                self._mask(client, ident, text)
            case _:
                raise ValueError("not a command")
        return False

    def _take_stacks(self, client: _Client, ident: int, tasks: tuple[TaskId, ...] | None) -> None:
        if len(client.looks) >= _MOST_LOOKS:
            raise ValueError(f"more than {_MOST_LOOKS} questions for stacks at a time")
        looking = asyncio.create_task(self._send_stacks(client, ident, tasks), name="stacks")
        client.looks.add(looking)
        looking.add_done_callback(client.looks.discard)

    def _mask(self, client: _Client, ident: int, text: str) -> None:
        if not client.outbox.has_room():
            raise ValueError("it does not read the answers to its questions")
        if len(text) > LONGEST_TEXT:
            raise ValueError(f"a text of more than {LONGEST_TEXT} characters")
        secrets = self._run.secrets
        answer = {"id": ident, "masked": secrets.mask(text)}
        client.writer.write(line_of(answer | {"unknown": secrets.unknown, "short": secrets.short}))

    async def _send_stacks(
        self, client: _Client, ident: int, tasks: tuple[TaskId, ...] | None
    ) -> None:
        message: dict[str, Any] = {"id": ident}
        try:
            stacks = await self._run.take_stacks(tasks)
            message["stacks"] = stacks_type().dump_python(stacks, mode="json")
        except Exception as error:  # a look is never a reason to end anything
            message["error"] = f"{type(error).__name__}: {error}"
        if not self._finished and client in self._clients:
            client.writer.write(line_of(message))

    def _subscribe(self, client: _Client, message: dict[str, Any], on_close: str) -> None:
        if client.subscribed:
            raise ValueError("it has subscribed already")
        client.subscribed = True
        client.kills = on_close == "kill"
        client.holds = message.get("screen") is True
        if client.holds and self._run.data.run.background:
            self._run.command(ev.Background(time.time(), False))
        client.responds = bool(message.get("prompts"))
        self._count(client, 1)
        self._begun.set()
        self.changed()
        if client.responds and self._prompts.pending:
            self.send_prompts()

    @property
    def _held(self) -> bool:
        """Another client has the run on its screen."""
        return any(client.holds for client in self._clients)

    def _count(self, client: _Client, by: int) -> None:
        if client.responds:
            self._prompts.responders += by
        else:
            self._prompts.others += by

    # --- state ----------------------------------------------------------------------------

    def _send_changes(self) -> None:
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._not_before = asyncio.get_running_loop().time() + _SECONDS_BETWEEN
        if not self._finished:
            self._send(self._run.refresh())

    def _catch_up(self) -> None:
        """Sends what clients lack: one of them has read what it was sent."""
        if not self._finished:
            self.send_prompts()
            self.changed()

    def _send(self, views: Views) -> None:
        touched = views.pop_touched()
        line = whole = b""
        for client in self._clients:
            if not client.subscribed:
                continue
            if not client.outbox.has_room():
                client.behind = True
            elif client.behind:
                whole = whole or _changed(views.records())
                client.writer.write(whole)
                client.behind = False
            elif touched:
                line = line or _changed(touched)
                client.writer.write(line)


class _Client:
    """One connection, and what its client has asked for."""

    def __init__(
        self, writer: asyncio.StreamWriter, on_read: Callable[[], None], *, kills: bool = False
    ) -> None:
        self.writer = writer
        self.outbox = Outbox(writer, on_read)
        self.subscribed = False
        self.heard = time.monotonic()
        """Time at which it connected, or has said something since."""
        self.kills = kills
        """The run is killed when it disappears."""
        self.holds = False
        """The run is on its person's screen: when the last such client disappears, the run is in
        the background."""
        self.responds = False
        self.behind = True
        """The client missed an update; its next message is the whole state."""
        self.prompts: tuple[PendingPrompt, ...] = ()
        """The prompts that the client was sent last."""
        self.looks: set[asyncio.Task[None]] = set()
        """Its questions for stacks that are under way."""

    @property
    def is_ours(self) -> bool:
        """The process at the other end is this user's."""
        return peer_uid(self.writer.get_extra_info("socket")) in (os.getuid(), 0)

    def close_unsubscribed(self) -> None:
        """Closes the connection of a client that has not said what it wants."""
        if not self.subscribed:
            reason = f"not subscribed within {_SUBSCRIBE_SECONDS:.0f} s"
            self.writer.write(line_of({"disconnected": reason}))
            self.writer.close()


def _changed(records: Iterable[Record]) -> bytes:
    """The message that these have changed."""
    return line_of({"changed": [plain(record) for record in records]})


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        raise ValueError(f"a line of more than {_LONGEST_COMMAND} bytes") from None
