"""What is known of a run that another launcher began, for the launcher that takes it up."""

from __future__ import annotations

from dataclasses import dataclass

from ..run.run import Run
from ..store.metrics_file import MetricsFile


@dataclass(frozen=True)
class Past:
    """The run as its journal tells it."""

    run: Run
    """It has handled `events` events of the journal."""
    events: int
    complete: bool
    """The journal was there and all of it could be read."""
    metrics: MetricsFile
