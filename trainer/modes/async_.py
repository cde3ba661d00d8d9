"""`async`: between-graph replication; every worker applies its gradients as they come."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import data, role, server, stop

if TYPE_CHECKING:
    from trainer.flags import Options


def run(options: Options) -> int:
    """Serves variables as a ps, or trains as a worker; returns the exit status."""
    me = role.resolve(options, os.environ, needs=("ps", "worker"))
    server.check_port(me)
    if me.job == "ps":
        return server.run_serving(me, options)
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.async_steps import AsyncSteps
    from trainer.downpour_steps import DownpourSteps
    from trainer.worker import Worker

    rarely = options.fetch_every > 1 or options.push_every > 1
    worker = Worker(me, options, dataset, DownpourSteps if rarely else AsyncSteps)
    return stop.run(worker.train, options.grace)
