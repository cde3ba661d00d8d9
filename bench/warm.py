"""How long a cluster takes from its launch until all its workers train.

    python -m bench.warm [--rounds 5]

The demo's cluster (1 ps, then 2 workers of which the chief is first) in strict order: warm, every
task imports TensorFlow at once and waits for its stage; cold, each stage pays for its own import.
Then 1 ps and 3 workers, warm, beside the same four commands started by hand at once, without any
order. A worker trains when its output names a step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial

from bench.report import Row, interleave, own_home, run
from bench.steps import ByHand, cluster, train
from bench.terminal import ROOT, until
from launcher.cluster import loads
from launcher.session.client import RunClient

OFTEN = "--log-every=10"
"""The first line comes after so many steps."""


def launched(workers: int, *, warm: bool) -> float:
    """Seconds from the launch until all workers train."""
    with own_home() as home:
        text = cluster(workers, home, OFTEN, warm=warm)
        began = time.perf_counter()
        client = RunClient.launch(loads(text, "bench", ROOT), text)
        logs = [client.folder.path / f"worker-{number}.log" for number in range(workers)]

        def ready() -> bool:
            failure = client.snapshot().first_failure
            if failure is not None:
                raise SystemExit(f"{failure.task}: {failure.how}")
            return train(logs)

        until(ready, pace=0.02)
        seconds = time.perf_counter() - began
        client.kill_all()
        client.wait()
    return seconds


def by_hand(workers: int) -> float:
    """Seconds from the start of all processes until all workers train."""
    began = time.perf_counter()
    running = ByHand(workers, OFTEN)
    try:
        until(lambda: train(running.logs), pace=0.02)
        return time.perf_counter() - began
    finally:
        running.close()


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Warm beside cold, then beside the commands by hand."""
    for workers, name, other, bound in (
        (2, "cold, strict order", partial(launched, 2, warm=False), 0.6),
        (3, "the same commands by hand, at once, no order", partial(by_hand, 3), 1.25),
    ):
        found = interleave(
            {"warm": partial(launched, workers, warm=True), "other": other}, options.rounds
        )
        what = f"launch of 1 ps + {workers} workers to all training, warm start"
        ours, theirs = tuple(found["warm"]), tuple(found["other"])
        yield Row(what, "s", ours, name, theirs, at_most=bound)


if __name__ == "__main__":
    run(__doc__, measure)
