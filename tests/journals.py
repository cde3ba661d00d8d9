"""Checks of a run's journal at its end."""

from __future__ import annotations

from dataclasses import replace

from launcher.cluster import load
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.store.journal import read_journal
from launcher.store.runs import RunFolder


def check_journal(folder: RunFolder) -> None:
    """The events in it lead to the state in its last record, when it has come to one."""
    journal = read_journal(folder.journal)
    cluster = load(folder.cluster_file, base=folder.origin)
    replayed = journal.replay(cluster, folder.run_id)
    replayed.validate()
    assert journal.replay(cluster, folder.run_id) == replayed
    if journal.final is not None and not journal.final.launcher_error:
        assert without_figures(journal.final) == replayed.snapshot()


def without_figures(seen: Snapshot) -> Snapshot:
    """The part of a snapshot that the state machine knows; the launcher's shell adds the rest."""
    return replace(seen, tasks=tuple(map(_task, seen.tasks)), hosts=tuple(map(_host, seen.hosts)))


def _task(view: TaskView) -> TaskView:
    return replace(
        view, step=None, loss=None, rate=None, metrics={}, last_output=None, log_size=0, url=""
    )


def _host(view: HostView) -> HostView:
    blank = HostView(view.name, view.destination, view.state)
    return replace(blank, reason=view.reason, lease_until=view.lease_until)
