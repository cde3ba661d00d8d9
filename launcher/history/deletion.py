"""Deletion of past runs, and what would be lost with one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path

from ..errors import TfmuxError
from ..frozen import frozen
from ..hosts.auth_prompt import PromptHandler
from ..paths import tilde
from ..plan.run_plan import HostPlan
from ..printable import printable
from ..quantities import counted, size
from ..run.snapshot import KeptResults
from ..store.runs import RunFolder
from ..store.stream import read_stream
from .kept_results import HeldAnswer, held_by_hosts, hosts_with_results
from .run_list import ListedRun, active_runs
from .stored import StoredRun

_COLLECTED = "collected"
_MOST_COUNTED = 1_000_000


class ResultsLeftError(TfmuxError):
    """A run has results that nobody has taken to another place."""


@frozen
class _Results:
    """Files below a directory."""

    files: int = 0
    bytes: int = 0

    @classmethod
    def below(cls, folder: Path) -> _Results:
        """Counts files; no link is followed."""
        files = total = 0
        for place, _, names in os.walk(folder) if not folder.is_symlink() else ():
            for name in names:
                files += 1
                total += os.lstat(os.path.join(place, name)).st_size
            if files > _MOST_COUNTED:
                break
        return cls(files, total)


def results_of(folder: RunFolder, ask: PromptHandler | None = None) -> list[str]:
    """Sentences on the results that would be lost with a run: those that have been collected lie in
    its folder, and those that have not can be brought no more. Hosts that may hold some are asked,
    however the run has ended: blocking; `ask` answers prompts of logins."""
    return list(_results(folder, ask))


def _results(folder: RunFolder, ask: PromptHandler | None) -> Iterator[str]:
    collected = folder.path / _COLLECTED
    here = _Results.below(collected)
    if here.files:
        what = f"{counted(here.files, 'collected file')}, {size(here.bytes)}"
        yield f"{what}, in {printable(tilde(collected))}: move them to keep them"
    views = read_stream(folder.events, folder.run_id).views
    yield from map(printable, views.run.results_missing)
    freed = folder.freed
    kept = {one.host: one for one in views.run.results_kept if one.host not in freed}
    said = _said_by_hosts(
        folder, freed | {host for host, one in kept.items() if not one.stays}, ask
    )
    for host in sorted(kept.keys() | said.keys()):
        one, now = kept.get(host, KeptResults(host)), said.get(host)
        if isinstance(now, HeldAnswer):
            one = KeptResults(
                host, now.files, now.bytes, now.folder, problem=now.problem, above=now.above
            )
        elif now is not None and not one.stays:
            one = replace(one, problem=f"it cannot be asked: {now}")
        brought = _Results.below(collected / Path(host).name)
        if one.stays and (one.problem or one.cut or one.files > brought.files):
            yield printable(one.text(folder.run_id))


def _said_by_hosts(
    folder: RunFolder, known: Set[str], ask: PromptHandler | None
) -> dict[str, HeldAnswer | str]:
    """What the hosts of a run say that they hold of it, but those of which it is known; where they
    are not known themselves, why."""
    run = StoredRun(folder)
    if {host.name for host in run.snapshot().hosts} <= known and run.end is not None:
        return {}
    try:
        hosts = [host for host in hosts_with_results(run) if host.name not in known]
    except TfmuxError as error:
        return {"its hosts": str(error).partition("\n")[0]}
    return held_by_hosts(run, hosts, ask) if hosts else {}


def delete_runs(
    folders: Sequence[RunFolder], *, force: bool = False, ask: PromptHandler | None = None
) -> Iterator[tuple[RunFolder, TfmuxError | None]]:
    """Deletes past runs, one after the other; yields each, with what has prevented it. A run that
    is active stays in any case; one with results, or whose hosts may hold some, unless `force`.
    Blocking: hosts of which it is not recorded are asked; `ask` answers prompts of logins."""
    found = active_runs(folders)
    active = {run.folder.run_id: _why_active(run) for run in found.runs}
    unclear = {
        run.run_id: f"{run.run_id} could not be read, and may be active: {run.reason}"
        for run in found.unreadable
    }
    for folder in folders:
        try:
            if why := active.get(folder.run_id) or unclear.get(folder.run_id):
                raise TfmuxError(printable(why))
            if not force and (lost := results_of(folder, ask)):
                raise ResultsLeftError(f"{folder.run_id} has results: {'; '.join(lost)}")
            folder.delete()
        except TfmuxError as error:
            yield folder, error
        except OSError as error:
            yield folder, TfmuxError(f"{error.filename}: {error.strerror}")
        else:
            yield folder, None


@frozen
class HeldRun:
    """What a past run holds on its hosts."""

    run: StoredRun
    hosts: tuple[HostPlan, ...]
    """Hosts that hold something, or may."""
    text: tuple[str, ...]
    """A sentence about each."""
    unreachable: tuple[str, ...]
    """A sentence about each host that could not be asked."""


def held_runs(folders: Sequence[RunFolder], ask: PromptHandler | None = None) -> Iterator[HeldRun]:
    """What past runs hold on their hosts, which are asked: blocking. Active runs, and those that
    hold nothing, are left out."""
    found = active_runs(folders)
    active = {run.folder.run_id for run in found.runs} | {run.run_id for run in found.unreadable}
    for folder in folders:
        if folder.run_id in active:
            continue
        try:
            run = StoredRun(folder)
            known = {one.host for one in run.snapshot().results_kept if not one.stays}
            hosts = {
                host.name: host
                for host in hosts_with_results(run)
                if host.name not in known | folder.freed
            }
        except TfmuxError as error:
            raise TfmuxError(f"{folder.run_id}: {error}") from error
        answers = held_by_hosts(run, list(hosts.values()), ask) if hosts else {}
        holds = {
            name: f"{name}: {counted(one.files, 'file')}, {size(one.bytes)}"
            for name, one in answers.items()
            if isinstance(one, HeldAnswer) and (one.files or one.problem)
        }
        failed = tuple(
            printable(f"{folder.run_id}: {name} cannot be asked: {one}")
            for name, one in answers.items()
            if isinstance(one, str)
        )
        if holds or failed:
            yield HeldRun(run, tuple(hosts[name] for name in holds), tuple(holds.values()), failed)


def _why_active(run: ListedRun) -> str:
    name = run.folder.run_id
    ends = f"`tfmux kill {name}` ends it"
    doubts = [host.name for host in run.hosts if host.unreachable or host.doubt]
    if run.launcher is None and doubts:
        where = ", ".join(doubts)
        forget = f"`tfmux kill --forget {name}` takes it from the list of active runs"
        return f"{name} may have processes on {where}: {ends}; {forget}"
    return f"{name} is active: {ends}"
