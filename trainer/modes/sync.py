"""`sync`: between-graph replication; one update has the gradients of several workers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import data, role, server, stop
from trainer.errors import UsageError

if TYPE_CHECKING:
    from trainer.flags import Options


def run(options: Options) -> int:
    """Serves variables as a ps, or trains as a worker; returns the exit status."""
    me = role.resolve(options, os.environ, needs=("ps", "worker"))
    needed = options.replicas_to_aggregate or me.trainers
    if needed > me.trainers:
        raise UsageError(
            f"--replicas-to-aggregate={needed}, but the cluster has {me.trainers} workers"
        )
    server.check_port(me)
    if me.job == "ps":
        return server.run_serving(me, options)
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.sync_steps import SyncSteps
    from trainer.worker import Worker

    return stop.run(Worker(me, options, dataset, SyncSteps, gradients=needed).train, options.grace)
