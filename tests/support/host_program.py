"""The short program on this machine that answers questions of a preflight."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from launcher.hosts import bootstrap
from launcher.hosts.programs import HostProgram, Q
from launcher.hosts.ways import LocalTransport
from tests.support.patience import PATIENCE

RUN = "check-20261120-183002-7f3a"


@asynccontextmanager
async def a_program(lease: float | None = 60.0) -> AsyncIterator[HostProgram]:
    """The program on this machine, as a preflight starts it."""

    async def open_session(nonce: str) -> LocalTransport:
        return await LocalTransport.open(bootstrap.argv(sys.executable, RUN, nonce))

    program = await HostProgram.start(RUN, "here", open_session, lease)
    try:
        yield program
    finally:
        await program.end()


async def ask(program: HostProgram, kind: type[Q], **asked: Any) -> Q:
    """The answer to one question."""
    [answer] = await program.ask(kind, PATIENCE, [asked])
    return answer
