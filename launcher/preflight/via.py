"""Checks of the command of a host (`via`): what it passes on, and which end ends which."""

from __future__ import annotations

import secrets

from ..errors import HostError
from ..hosts.bootstrap import arrive
from ..hosts.ways import open_via
from ..plan.plan import HostPlan
from . import evaluate
from .findings import Check, Finding, passed, warning

END_SECONDS = 3.0


async def check_command(host: HostPlan, run_id: str) -> Finding:
    """Starts the command and the interpreter behind it, sends nothing, and ends its input."""
    nonce = secrets.token_hex(8)
    try:
        transport = await open_via(host, run_id, nonce)
        try:
            await arrive(transport, nonce, host.name)
            transport.close_input()
            ended = await transport.wait_ended(END_SECONDS)
        finally:
            await transport.aclose()
    except HostError as error:
        return evaluate.failure(error)
    if ended:
        sentence = f"{host.destination} passes every byte on at once, and ends with its input"
        return passed(Check.LOGIN, host.name, "8-bit clean", sentence)
    sentence = (
        f"{host.destination} goes on when its input has ended, which ends the process on the host: "
        "tfmux ends the command itself, but what that has started elsewhere may stay"
    )
    todo = "let it pass the end of its input on, and end with the process that it runs (exec)"
    return warning(Check.LOGIN, "via-lingers", host.name, "lingers", sentence, todo)


def shell(host: str, noise: bytes) -> Finding:
    """There is no login shell to look at; what the command prints first is ignored."""
    said = noise.decode(errors="replace").strip().splitlines()
    sentence = "no login shell: via runs tfmux's command"
    if said:
        sentence += f", and prints text before ('{said[0][:60]}'), which tfmux ignores"
    return passed(Check.SHELL, host, "not used", sentence)
