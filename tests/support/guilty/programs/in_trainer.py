"""`python -m trainer`, behind its folder, where one worker goes wrong."""

import itertools
import sys
from typing import Any

import fault

from trainer import __main__, worker

calls = itertools.count(1)


def faulty(next_steps: Any) -> Any:
    """The steps of a worker, each after a batch that may be bad."""

    def wrapped(self: Any, step: int) -> Any:
        try:
            fault.trouble(next(calls), self.role.number)
        except ValueError:
            if fault.HOW == "slowly":
                fault.time.sleep(fault.SECONDS_TO_LEAVE)
            raise
        return next_steps(self, step)

    return wrapped


worker.Training.next_steps = faulty(worker.Training.next_steps)
worker.Worker.next_steps = faulty(worker.Worker.next_steps)
del sys.argv[1]
__main__.main()
