"""`towers`: one machine, a tower on each of its devices, variables on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer import data, stop

if TYPE_CHECKING:
    from trainer.flags import Options

# Momentum makes each step about ten times as long.
LEARNING_RATES = {"mlp": 0.2, "cnn": 0.02}


def run(options: Options) -> int:
    """Trains in this process; returns the exit status."""
    options.learning_rate = options.learning_rate or LEARNING_RATES[options.model]
    dataset = data.load(options.data)
    # TensorFlow's import takes seconds: whatever can be wrong without it has been said by now.
    from trainer.tower_training import TowerTraining

    return stop.run(TowerTraining(options, dataset).train, options.grace)
