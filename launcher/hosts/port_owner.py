"""Descriptions of the process that listens on a port."""

from __future__ import annotations

from typing import Protocol

from ..printable import printable


class PortOwner(Protocol):
    """A process that listens on a port, as a host has told."""

    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def command(self) -> str: ...
    @property
    def task(self) -> str: ...


def describe_owner(owner: PortOwner | None) -> str:
    """`pid 12 of worker:0 of the run R (python -m trainer …)`; empty when there is none."""
    if owner is None:
        return ""
    if not owner.pid:
        return "another user's process"
    run, _, rest = owner.task.partition("/")
    by = f" of {rest.rpartition('/')[0]} of the run {run}" if run else ""
    return printable(f"pid {owner.pid}{by} ({owner.command})")


def owning_run(owner: PortOwner) -> str:
    """The run to whose task the port belongs; empty when it is no run's."""
    return owner.task.partition("/")[0]


def port_in_use(owner: PortOwner) -> str:
    """The sentence for a port that a task needs."""
    return f"port {owner.port} is in use by {describe_owner(owner)}"
