"""`ps-strategy`: the ps/worker training the TensorFlow 2 way, with a coordinator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import data, role, server, stop

if TYPE_CHECKING:
    from trainer.flags import Options


def run(options: Options) -> int:
    """The chief coordinates; workers serve until it is done, a ps until TERM."""
    me = role.resolve(options, os.environ, needs=("chief", "worker", "ps"))
    server.check_port(me)
    if me.job == "ps":
        return server.run_serving(me, options)
    if not me.is_chief:
        from trainer import over

        return stop.run(lambda stop: over.serve(me, options, stop), options.grace)
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.coordinator import Coordinator

    return stop.run(Coordinator(me, options, dataset).train, options.grace)
