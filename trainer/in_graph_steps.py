"""In-graph steps: one graph has a tower on every worker, fed by its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer import over
from trainer.async_steps import AsyncSteps

if TYPE_CHECKING:
    from trainer.stop import Stop
    from trainer.worker import Part


class InGraphSteps(AsyncSteps):
    """One batch a worker from the client's memory; the gradients' mean is taken on the ps."""

    def __init__(self, part: Part) -> None:
        super().__init__(part, average_on_ps=True)
        others = [f"/job:worker/task:{index}" for index in range(len(part.role.cluster["worker"]))]
        self._tell = [over.tell(device) for device in others if device != part.role.device]
        self._session: Any = None

    def begin(self, session: Any, step: int, stop: Stop) -> None:
        """Prepares the step for this session."""
        super().begin(session, step, stop)
        self._session = session

    def end(self) -> None:
        """Tells the other workers that they may leave."""
        self._session.run(self._tell)
