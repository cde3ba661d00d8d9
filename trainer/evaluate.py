"""`evaluate`: follows a directory of checkpoints and tests the moving averages of each.

    chief:      now and then saves w, its moving averages and step
    evaluator:  repeat
                    wait for a checkpoint that it has not tested
                    accuracy ← test set with the moving averages of that checkpoint

Nobody waits for it: of several checkpoints that came meanwhile it tests the newest.
"""

import dataclasses
import pathlib
import time
from argparse import Namespace

from trainer import data, stop
from trainer.checkpoint import Checkpoints
from trainer.convolution import MODELS
from trainer.data import Dataset
from trainer.exceptions import CheckpointError
from trainer.parameters import Values
from trainer.progress import Summaries
from trainer.stop import Stop

_WRITING_SECONDS = 3.0


def run(options: Namespace) -> int:
    """Tests until TERM, after which the newest checkpoint is still tested; or until `--steps`."""
    dataset = data.load(options.data)
    return stop.run(lambda stop: _follow(options, dataset, stop), options.grace)


def _follow(options: Namespace, dataset: Dataset, stop: Stop) -> None:
    stop.worth_waiting = stop.expected = True
    # Momentum is not tested, and a training without it has none to read.
    model = dataclasses.replace(MODELS[options.model], momentum=0.0)
    checkpoints = Checkpoints(model, options, of_any_run=True)
    assert checkpoints.directory
    summaries = Summaries(checkpoints.directory / "evaluator")
    print(f"follows {checkpoints.directory}, testing on {dataset.name}")
    seen = -1
    while True:
        last = stop.requested
        values = _newest(checkpoints)
        if values and values.step > seen:
            seen = values.step
            accuracy = checkpoints.accuracy(values, dataset.test)
            print(
                f"Checkpoint at global step {seen}: test accuracy {accuracy:.4f} "
                f"on {len(dataset.test)} images"
            )
            summaries.write(seen, test_accuracy=accuracy)
        if last or (options.steps and seen >= options.steps):
            return
        stop.wait(options.poll_secs)


def _newest(checkpoints: Checkpoints) -> Values | None:
    try:
        path = checkpoints.find()
    except CheckpointError:
        time.sleep(_WRITING_SECONDS)  # TensorFlow writes the file that names the newest one last
        path = checkpoints.find()
    try:
        return checkpoints.load(path) if path else None
    except CheckpointError:
        if pathlib.Path(f"{path}.index").exists():
            raise
        return None  # the chief keeps only the last few and has just removed it
