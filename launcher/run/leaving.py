"""Sentences on what hosts do without the launching machine: before a run is left, and of one that
has been."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..quantities import and_list, counted, span
from .states import HostState

if TYPE_CHECKING:  # the first frame of `tfmux` waits for this module
    from .snapshot import HostView, Snapshot

_MOST_NAMES = 6


def promise(run: Snapshot) -> list[str]:
    """What holds when the run is left: sentences for whoever is about to leave it."""
    far, names = _far(run), _named(_far(run))
    found = []
    if far and run.lease is not None and run.detached_lease is None:
        keep = "keeps its tasks" if len(far) == 1 else "keep their tasks"
        found.append(f"Without this machine {names} {keep}, until tfmux attach.")
    elif far and run.lease is not None:
        now = f" ({span(run.lease)} while a screen shows the run)"
        wait = _wait(far, run.detached_lease or run.lease)
        found.append(f"Without this machine {names} {wait}{now}.")
    if here := _here(run):
        end = "runs on this machine and ends" if here[1:] == [] else "run on this machine and end"
        found.append(f"{counted(len(here), 'task')} {end} with it.")
    return found


def waits(run: Snapshot) -> list[str]:
    """What its hosts do without this machine, as they have confirmed it: lines without a capital
    letter. Empty where nothing is known of that."""
    far = _far(run)
    found = []
    wanted = run.detached_lease if run.background else run.lease
    if far and run.lease is not None and wanted is not None:
        sure = [host for host in far if _lease(run, host) == wanted]
        if sure:
            found.append(f"without this machine {_named(sure)} {_wait(sure, wanted)}")
        for host in [host for host in far if host not in sure][:_MOST_NAMES]:
            lost = f" ({host.state})" if host.state is not HostState.UP else ""
            after = span(_lease(run, host) or run.lease)
            found.append(
                f"{host.name}{lost} has not confirmed a lease of {span(wanted)}: without this "
                f"machine it may end its tasks after {after}"
            )
        if (more := len(far) - len(sure) - _MOST_NAMES) > 0:
            found.append(f"{counted(more, 'more host has', 'more hosts have')} not confirmed it")
    elif far and run.lease is not None:
        keep = "keeps its tasks" if len(far) == 1 else "keep their tasks"
        found.append(f"without this machine {_named(far)} {keep}, until tfmux attach")
    if here := _here(run):
        tasks = and_list([*map(str, here[:_MOST_NAMES]), *_rest(len(here), "task")])
        found.append(f"{tasks} on this machine {'ends' if len(here) == 1 else 'end'} with it")
    return found


def _lease(run: Snapshot, host: HostView) -> float | None:
    return run.lease if host.lease is None else host.lease


def _far(run: Snapshot) -> list[HostView]:
    return [host for host in run.hosts if not host.local]


def _here(run: Snapshot) -> list[object]:
    local = {host.name for host in run.hosts if host.local}
    return [task.id for task in run.tasks if task.host in local and not task.state.ended]


def _wait(hosts: Sequence[HostView], seconds: float) -> str:
    if len(hosts) == 1:
        return f"waits {span(seconds)}, then it ends its tasks"
    return f"wait {span(seconds)}, then they end their tasks"


def _named(hosts: Sequence[HostView]) -> str:
    names = [host.name for host in hosts]
    return and_list([*names[:_MOST_NAMES], *_rest(len(names), "host")])


def _rest(count: int, noun: str) -> list[str]:
    return [counted(count - _MOST_NAMES, f"more {noun}")] if count > _MOST_NAMES else []
