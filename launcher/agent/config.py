"""Configuration of an agent, sent with its source."""

from __future__ import annotations

from dataclasses import dataclass, field

from .fields import FLAG, RAW_TEXT, Record, choice, meta, number, optional, raw_text, record


@dataclass(frozen=True)
class Rules(Record):
    """What an agent does without a launcher: after `lease` seconds it stops the tasks (with
    `grace` seconds between TERM and KILL) or keeps them, as `on_disconnect` says."""

    lease: float = field(metadata=meta(number(0, 1e9)))
    grace: float = field(metadata=meta(number(0, 1e9)))
    on_disconnect: str = field(metadata=meta(choice("stop", "keep")))


@dataclass(frozen=True)
class AgentConfig(Record):
    """What a bridge is sent with the agent's source. `local`: the end of the channel means that
    the launcher is dead. Without `make` the bridge only looks for an agent that is there."""

    run_id: str = field(metadata=RAW_TEXT)
    host: str = field(metadata=RAW_TEXT)
    rules: Rules = field(metadata=meta(record(Rules)))
    local: bool = field(metadata=FLAG)
    logs: str | None = field(default=None, metadata=meta(optional(raw_text())))
    make: bool = field(default=True, metadata=FLAG)
