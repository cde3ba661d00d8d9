"""`evaluate`: follows a directory of checkpoints and tests the moving averages of each."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any

from trainer import data, stop

if TYPE_CHECKING:
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.stop import Stop


def run(options: Options) -> int:
    """Tests until TERM, after which the newest checkpoint is still tested; or until `--steps`."""
    dataset = data.load(options.data)
    return stop.run(lambda stop: _follow(options, dataset, stop), options.grace)


def _follow(options: Options, dataset: Dataset, stop: Stop) -> None:
    from trainer.checkpoint import Checkpoints
    from trainer.chief import Accuracy
    from trainer.model import MLP
    from trainer.progress import Summaries

    stop.worth_waiting = stop.expected = True
    directory = pathlib.Path(options.logdir or "").expanduser()
    checkpoints = Checkpoints(
        str(directory),
        os.environ.get("TFMUX_RUN_ID"),
        options.resume or os.environ.get("TFMUX_RESUME") or None,
    )
    summaries = Summaries(directory / "evaluator")
    print(f"follows {directory}, testing on {dataset.name}", flush=True)
    test = Accuracy(MLP)
    seen = -1
    while True:
        last = stop.requested
        step, accuracy = _test(checkpoints, dataset, seen, test)
        if step > seen:
            seen = step
            print(
                f"Checkpoint at global step {step}: test accuracy {accuracy:.4f} "
                f"on {len(dataset.test)} images",
                flush=True,
            )
            summaries.write(step, test_accuracy=accuracy)
        if last or (options.steps and seen >= options.steps):
            return
        stop.wait(options.poll_secs)


def _test(checkpoints: Any, dataset: Dataset, seen: int, accuracy: Any) -> tuple[int, float]:
    """Step and accuracy of the newest checkpoint; of none when it is not newer than `seen`."""
    from trainer.checkpoint import STEP, read_arrays
    from trainer.errors import CheckpointError
    from trainer.model import MLP

    path = checkpoints.find()
    if path is None:
        return -1, 0.0
    try:
        (step,) = read_arrays(path, [STEP])
        if step <= seen:
            return int(step), 0.0
        weights = read_arrays(path, [f"{name}/average" for name in MLP.names])
    except CheckpointError:
        if pathlib.Path(f"{path}.index").exists():
            raise
        return -1, 0.0  # the chief keeps only the last few and has just removed it
    return int(step), accuracy(weights, dataset.test)
