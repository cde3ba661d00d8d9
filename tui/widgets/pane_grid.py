"""Grid of panes: a few pane widgets in computed boxes; views move in and out of them."""

from __future__ import annotations

from textual.geometry import NULL_SPACING, Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from tui.pane_layout import Box

from .log_pane import LogPane
from .pane_frame import PaneBorders


class BoxLayout(Layout):
    """Places each visible child into its box."""

    name = "boxes"

    def __init__(self) -> None:
        self.boxes: list[Box] = []

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        return [
            WidgetPlacement(Region(*box), Offset(), NULL_SPACING, child)
            for child, box in zip(children, self.boxes, strict=False)
        ]


class PaneGrid(Widget):
    """Holds as many panes as one page shows; more tasks cost no more widgets."""

    BLANK = True  # covered by the panes, with each of whose lines Textual paints this widget too

    def __init__(self) -> None:
        super().__init__()
        self._boxes = BoxLayout()
        self.panes: list[LogPane] = []
        """Panes on the screen, in reading order."""
        self._pool: list[LogPane] = []

    @property
    def layout(self) -> Layout:
        """Boxes instead of a layout of the style sheet."""
        return self._boxes

    def place(self, boxes: list[Box], *, framed: bool) -> list[LogPane]:
        """One pane for each box; panes that are not needed are hidden. `framed`: with borders on
        all sides."""
        while len(self._pool) < len(boxes):
            pane = LogPane()
            self._pool.append(pane)
            self.mount(pane)
        for i, pane in enumerate(self._pool):
            pane.display = i < len(boxes)
        self.panes = self._pool[: len(boxes)]
        for pane, box in zip(self.panes, boxes, strict=True):
            pane.frame = PaneBorders(whole=framed, left=box.x > 0)
        self._boxes.boxes = boxes
        # `refresh` forgets what the ancestors have arranged, not what we have: after a resize
        # the boxes of the old size would stay.
        self._clear_arrangement_cache()
        self.refresh(layout=True)
        return self.panes
