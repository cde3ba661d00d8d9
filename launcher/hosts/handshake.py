"""Handshake with a host: our command starts there, and its agent answers with a welcome.

It is the same on every way. A login shell may print, wait, or be something else than a shell:
everything up to the marker is skipped, and every wait has a deadline. Behind the marker come all
256 values of a byte: a terminal or a filter in between changes some, or holds them back.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from ..agent import wire
from ..errors import AgentError, HostError, InterpreterError
from ..ids import TaskId
from ..plan.environment import EXTENDED, VISIBLE
from ..plan.plan import HostPlan, Plan
from ..printable import printable
from . import bootstrap
from .frame_checks import FrameChecker
from .frames import AgentConfig, Gone, Hello, Refusal, Rules, Welcome
from .transport import ArrivalErrors, Transport

START_SECONDS = 30.0
AGENT_SECONDS = 15.0
"""How long a bridge waits for an agent that an engine starts."""
ANSWER_SECONDS = 5.0
"""For what comes without a line break: a stream that holds it back is of no use."""
_MOST_SEEN = 1 << 16
_NOISE_BYTES = 4096


class TransportFactory(Protocol):
    """Opener of transports to a host: there the interpreter starts and prints a marker with
    `nonce`. Where a login is open already (`beside`), it is used once more."""

    def __call__(
        self, run_id: str, nonce: str, beside: Transport | None = None
    ) -> Awaitable[Transport]: ...


@dataclass(frozen=True)
class LinkSettings:
    """Settings of a run for an agent; `lease` and `grace` are seconds."""

    run_id: str
    host: str
    lease: float
    grace: float
    on_disconnect: str
    local: bool
    logs: str | None = None
    persistent: bool = False
    """Attached: a host that cannot be reached at first is lost, not refused."""
    has_agent: bool = False
    """An engine has started the agent, or is about to: the bridge waits for it and makes none."""
    tasks: Mapping[TaskId, int] = field(default_factory=dict)
    """The host's tasks, each with its `log_limit`."""

    @property
    def beat(self) -> float:
        """Seconds between two beats: a quarter of a short lease, else two seconds."""
        return min(2.0, self.lease / 4)

    @property
    def rules(self) -> Rules:
        """Behaviour of the agent without a launcher."""
        return Rules(self.lease, self.grace, self.on_disconnect)

    def config(
        self, *, make: bool = True, known: bool = False, end_before: bool = False
    ) -> AgentConfig:
        """Configuration for the bridge; without `make` it only looks for an agent. One that is
        `known` has been there before, and is not waited for; `end_before` ends the one that is
        there."""
        wait = AGENT_SECONDS if make and self.has_agent and not known else 0.0
        make = make and not self.has_agent
        return AgentConfig(
            run_id=self.run_id,
            host=self.host,
            rules=self.rules,
            local=self.local,
            logs=self.logs,
            make=make,
            wait=wait,
            end_before=end_before,
        )

    def hello(self, token: str, *, query: bool = False) -> Hello:
        """The first frame; a `query` replaces no launcher and renews no lease."""
        return Hello(
            token=token,
            launcher=f"{os.uname().nodename}:{os.getpid()}",
            variables=(*EXTENDED, VISIBLE),
            rules=None if query else self.rules,
        )

    def refused(self, refusal: Refusal) -> AgentError:
        """The error that a host's refusal is."""
        todo = ""
        if refusal.code == wire.OTHER_VERSION:
            todo = f"attach with that version, or end the run: tfmux kill {self.run_id}"
        return AgentError(self.host, refusal.text, code=refusal.code, todo=todo)

    def frame_checker(self) -> FrameChecker:
        """The rules for what the host may say."""
        return FrameChecker(self.host, self.tasks, local=self.local, adopts=self.persistent)


def link_settings(
    plan: Plan, host: HostPlan, logs: Path, *, persistent: bool = False
) -> LinkSettings:
    """Settings of the run for a host's agent."""
    local = host.local
    return LinkSettings(
        run_id=plan.run_id,
        host=host.name,
        lease=plan.settings.lease,
        grace=plan.settings.grace,
        on_disconnect=str(plan.settings.on_disconnect),
        local=local,
        logs=str(logs) if local else None,
        persistent=persistent,
        has_agent=host.has_agent,
        tasks={task.id: task.log_limit for task in plan.on_host(host.name)},
    )


async def query_agent(
    settings: LinkSettings, open_transport: TransportFactory
) -> Welcome | Gone | None:
    """Asks a host's agent what it holds, without taking it over: its welcome. Without an agent
    `Gone.left` names the tasks of which processes live all the same; None when none do.

    Raises:
        HostError: the host cannot be reached, or its agent breaks the protocol.
    """
    checker = replace(settings, persistent=True).frame_checker()
    nonce = secrets.token_hex(8)
    transport = await open_transport(settings.run_id, nonce)
    try:
        hello = settings.hello("", query=True)
        data = await greet(transport, nonce, settings.config(make=False), hello)
        async with asyncio.timeout(START_SECONDS):
            decoder = wire.Decoder()
            while True:
                for frame in decoder.feed(data):
                    match checker.check(frame):
                        case Welcome() as welcome:
                            return welcome
                        case Gone(left=(_, *_)) as gone:
                            return gone
                        case Refusal() as refusal:
                            raise settings.refused(refusal)
                    return None
                data = await transport.read()
                if not data:
                    return None
    except TimeoutError as error:
        raise AgentError(settings.host, "the agent did not answer") from error
    except wire.WireError as error:
        raise AgentError(
            settings.host, f"received data that is not from an agent: {error}"
        ) from error
    finally:
        await transport.aclose()


async def greet(transport: Transport, nonce: str, config: AgentConfig, hello: Hello) -> bytes:
    """Sends the agent's modules and the first frame, once our command has arrived; returns what
    has come of the answer.

    Raises:
        HostError: it does not arrive.
    """
    arrival = await arrive(transport, nonce, config.host)
    transport.write(bootstrap.payload(config, arrival.magic))
    transport.write(hello.encode())
    return arrival.rest


class Arrival(NamedTuple):
    """Arrival of our command on a host: its interpreter waits for a program."""

    magic: bytes
    """Magic number of the interpreter's code."""
    noise: bytes
    """What the login shell printed before."""
    rest: bytes
    """What followed."""


async def arrive(transport: Transport, nonce: str, host: str) -> Arrival:
    """Waits for the marker with `nonce` and for all values of a byte behind it.

    Raises:
        HostError: they do not come, or not as they were written.
    """
    errors = transport.errors or LoginErrors(host)
    before, rest = await _await_marker(transport, bootstrap.marker(nonce), errors)
    wanted = b"\n" + bootstrap.EVERY_BYTE
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while wanted.startswith(rest) and len(rest) < len(wanted):
                data = await transport.read()
                if not data:
                    raise errors.ended(await transport.status(), rest, transport.complaint)
                rest += data
    except TimeoutError as error:
        raise errors.buffered() from error
    if not rest.startswith(wanted):
        raise errors.altered(wanted, rest)
    noise, magic = bootstrap.split_magic(before)
    return Arrival(magic, noise[:_NOISE_BYTES], rest[len(wanted) :])


async def _await_marker(
    transport: Transport, marker: bytes, errors: ArrivalErrors
) -> tuple[bytes, bytes]:
    """What came before the marker, and behind it."""
    seen, count = b"", 0
    try:
        async with asyncio.timeout(START_SECONDS):
            while marker not in seen:
                data = await transport.read()
                if not data:
                    raise errors.ended(await transport.status(), seen, transport.complaint)
                count += len(data)
                seen = (seen + data)[-_MOST_SEEN:]
                if error := errors.noisy(count, seen):
                    raise error
    except TimeoutError as late:
        if transport.close_input():  # then our line ends, and what was held back may come
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    while data := await transport.read():
                        seen = (seen + data)[-_MOST_SEEN:]
        raise errors.silent(seen, marker in seen, transport.complaint) from late
    before, _, rest = seen.partition(marker)
    return before, rest


class LoginErrors:
    """Errors of a login, and of this machine."""

    def __init__(self, host: str) -> None:
        self._host = host

    def ended(self, status: int | None, seen: bytes, complaint: str) -> HostError:
        """The interpreter is not there, or does not run."""
        said = last_line(complaint or seen.decode(errors="replace"))
        what = f"the interpreter did not start: {said or 'it printed nothing'}"
        todo = 'write where a Python 3.8 or newer is: python = "…" of the host'
        return InterpreterError(self._host, what, todo=todo)

    def silent(self, seen: bytes, held: bool, complaint: str) -> HostError:
        """A start-up file waits, or has started something else."""
        return self._blocked(f"did not run our command within {START_SECONDS:.0f} s", seen)

    def noisy(self, count: int, seen: bytes) -> HostError | None:
        """Start-up files may print what they like."""
        return None

    def buffered(self) -> HostError:
        """Something stands between the interpreter and us."""
        return self._unclean("holds output back until a line is full")

    def altered(self, wanted: bytes, found: bytes) -> HostError:
        """A terminal, or a filter, stands between the interpreter and us."""
        if found.startswith(b"\r"):
            return self._unclean("changes line ends")
        return self._unclean(f"changes bytes: {first_difference(wanted, found)}")

    def _blocked(self, what: str, seen: bytes) -> HostError:
        said = last_line(seen.decode(errors="replace"))
        what = f"logged in, but the login shell {what}{f' (it printed: {said})' if said else ''}"
        todo = "its start-up files (such as ~/.bashrc) may read input, wait, or start another "
        todo += "shell: let them do so only in interactive sessions"
        return AgentError(self._host, what, code="shell-blocked", todo=todo)

    def _unclean(self, how: str) -> HostError:
        what = "logged in, but the channel to our command is not 8-bit clean: a terminal in "
        what += f"between {how}"
        todo = "a ForceCommand there, or a command= in authorized_keys, may run it in a terminal "
        todo += "(script, screen): exclude this login from it"
        return AgentError(self._host, what, code="shell-blocked", todo=todo)


def first_difference(wanted: bytes, found: bytes) -> str:
    """The first byte that came as another one."""
    at = next(i for i, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b)
    return f"byte 0x{wanted[at]:02x} came as 0x{found[at]:02x}"


def last_line(text: str) -> str:
    """The last line that is not empty, for a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[-1], 300) if lines else ""
