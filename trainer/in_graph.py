"""`in-graph`: one client builds towers on all workers' devices; the workers only serve."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from trainer.asynchronous import AsyncSteps
from trainer.worker import Worker

if TYPE_CHECKING:
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains as the client: one batch a worker, the gradients' mean is taken on the ps."""
    build = functools.partial(AsyncSteps, average_on_ps=True)
    Worker(role, options, dataset, "in-graph", build, everywhere=True).train(stop)
