"""Table `[metrics]` of a cluster file."""

from __future__ import annotations

from typing import Annotated

from .fields import Key, MetricsPattern, Steps
from .table import Table


class Metrics(Table):
    """`[metrics]`: how a script with a format of its own says its step and loss."""

    pattern: Annotated[
        MetricsPattern | None,
        Key(
            r"regular expression with a group `step`, such as `iter (?P<step>\d+)`. It is searched "
            "in each line. `step` is the global step; a group `loss`, and any others, are read too",
            "known formats",
        ),
    ] = None
    total: Annotated[Steps | None, Key("last step. It makes the step a progress bar")] = None
