"""What the tours of one ps and two workers share: who is who, and that a ps just serves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import role, server, stop
from trainer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.flags import Options
    from trainer.role import Role


def run(options: Options, tour: Callable[[Role, Options], None]) -> int:
    """Serves as the ps, or takes the tour as one of the two workers.

    Returns the exit status. Raises UsageError when there are not two workers.
    """
    me = role.resolve(options, os.environ, needs=("ps", "worker"))
    if len(me.cluster["worker"]) != 2:
        raise UsageError("this tour is of two workers")
    server.check_port(me)
    if me.job == "ps":
        return server.run_serving(me, options)
    return stop.run(lambda _: tour(me, options), options.grace)
