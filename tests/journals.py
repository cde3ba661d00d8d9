"""What a run's journal must say at its end."""

from __future__ import annotations

from launcher.cluster.file import load
from launcher.run.snapshot import Snapshot
from launcher.store.journal import read_journal
from launcher.store.runs import RunFolder


def check_journal(folder: RunFolder) -> None:
    """The events in it lead to the state in its last record, when it has come to one."""
    journal = read_journal(folder.journal)
    cluster = load(folder.cluster_file, base=folder.origin)
    replayed = journal.replay(cluster, folder.run_id)
    replayed.validate()
    if journal.final is not None and not journal.final.launcher_error:
        assert known(replayed.snapshot()) == known(journal.final)


def known(seen: Snapshot) -> tuple[object, ...]:
    """What the state machine knows; figures come from elsewhere."""
    return (
        (seen.state, seen.outcome, seen.exit_code, seen.receipt, seen.notes, seen.first_failure),
        [(h.name, h.state, h.reason, h.lease_until) for h in seen.hosts],
        [
            (t.id, t.state, t.attempt, t.attempts, t.pid, t.exit_code, t.exit_signal, t.reason)
            for t in seen.tasks
        ],
        [(t.address, t.started, t.ended) for t in seen.tasks],
    )
