"""Configuration of an agent, sent with its modules."""

from __future__ import annotations

from .fields import Annotated, RawText, Record, Seconds, choice

FROZEN_SECONDS = 8.0
"""Silence of an agent after which its watchdog ends everything; the launcher waits for longer."""

OnDisconnect = Annotated[str, choice("stop", "keep")]


class Rules(Record):
    """Behaviour of an agent without a launcher: after `lease` seconds it stops the tasks (with
    `grace` seconds between TERM and KILL) or keeps them, as `on_disconnect` says."""

    lease: Seconds
    grace: Seconds
    on_disconnect: OnDisconnect


class AgentConfig(Record):
    """Settings that a bridge gets with the agent's modules. `local`: the end of the channel means
    that the launcher is dead. Without `make` the bridge only looks for an agent that is there, for
    `wait` seconds; with `end_before` it first ends the one that is there, and all that this has
    started. `by_engine`: an engine starts it, and there is no channel; the watchdog is
    this very process, the first one of a job step, which ends with it."""

    run_id: RawText
    host: RawText
    rules: Rules
    local: bool
    logs: RawText | None = None
    make: bool = True
    wait: Seconds = 0.0
    end_before: bool = False
    by_engine: bool = False
