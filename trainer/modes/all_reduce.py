"""`all-reduce`: workers alone, no ps; each has all weights, and they average their gradients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import data, role, server, stop
from trainer.errors import UsageError

if TYPE_CHECKING:
    from trainer.flags import Options


def run(options: Options) -> int:
    """Trains as one of the workers; returns the exit status."""
    me = role.resolve(options, os.environ, needs=("worker",))
    if "ps" in me.cluster:
        raise UsageError("this mode has no ps; leave it out of the cluster")
    server.check_port(me)
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.all_reduce import AllReduce

    return stop.run(AllReduce(me, options, dataset).train, options.grace)
