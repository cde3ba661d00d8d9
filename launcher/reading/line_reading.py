"""Reading of new output, line by line: figures, and whom a task says that it waits for."""

from __future__ import annotations

from ..ids import TaskId
from ..store.metric_lines import Extractor
from ..store.metrics import with_newer
from .looks import LineNews, NewLines
from .waiting import awaited_in

_extractors: dict[TaskId, Extractor] = {}
"""What is known of each task's earlier lines."""


def news_in(new: NewLines, pattern: str | None) -> LineNews:
    """Whom a task waits for, its newest figures and its steps a second, by what it has printed
    since; `pattern` is the cluster file's own. NewFigures are None where no line has any."""
    extractor = _extractors.get(new.task)
    if extractor is None:
        extractor = _extractors[new.task] = Extractor(pattern)
    values: dict[str, float] | None = None
    for point in extractor.feed(new.data, new.time):
        values = dict(with_newer(values or {}, point.values))
    return awaited_in(new.data), values, extractor.rate
