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
        return stop.run(lambda stop: _serve(me, options, stop), options.grace)
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.asynchronous import Worker

    return stop.run(Worker(me, options, dataset).train, options.grace)


def _serve(me: role.Role, options: Options, stop: stop.Stop) -> None:
    server.start(me, options.threads, serve_only=True)
    server.serve(me, stop)
