"""`in-graph`: one client builds towers on all workers' devices; the workers only serve."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import data, role, server, stop

if TYPE_CHECKING:
    from trainer.flags import Options


def run(options: Options) -> int:
    """The chief is the client; workers serve until it is done, a ps until TERM."""
    me = role.resolve(options, os.environ, needs=("ps", "worker"))
    server.check_port(me)
    if me.job == "ps":
        return server.run_serving(me, options)
    if not me.is_chief:
        from trainer import over

        return stop.run(lambda stop: over.serve(me, options, stop), options.grace)
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.in_graph_steps import InGraphSteps
    from trainer.worker import Worker

    client = Worker(me, options, dataset, InGraphSteps, everywhere=True)
    return stop.run(client.train, options.grace)
