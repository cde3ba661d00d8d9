"""Search, filter and the merged log, against a plain reading of the same bytes."""

from __future__ import annotations

import threading
from pathlib import Path

from launcher.ids import TaskId
from launcher.store.logs import LogStore
from tests.support.patience import wait_until
from tui.log.document import Document
from tui.log.finder import Finder
from tui.log.merged import Merged
from tui.log.query import Query


def test_a_thousand_logs_are_searched_by_one_thread(tmp_path: Path) -> None:
    """Search and filter of the merged log of many tasks: a thread for each log, and for each hit a
    look through the list of all tasks, stopped the screen with 8,000."""
    store = LogStore(tmp_path)
    tasks = [TaskId("worker", number) for number in range(1000)]
    for number, task in enumerate(tasks):
        store.open(task).append(0, b"hay\nneedle %d\nhay\n" % number, 1000.0 + number)
    lines = Merged({task: Document(task, store.open(task)) for task in tasks})
    lines.refresh()
    before = threading.active_count()
    search = Finder(lines, Query("needle"), lines.count)
    assert threading.active_count() <= before + 1
    try:
        wait_until(lambda: search.done, "all is counted")
        assert (search.count, search.share) == (1000, 1.0)
        assert search.follow() == 2998
        assert search.neighbour(2998, forward=False) == 2995
        assert search.neighbour(2998, forward=True) == 1
        search.step(-1)
        assert search.follow() == 2995 and search.place() == (999, 1000)
    finally:
        search.close()
        store.close()
