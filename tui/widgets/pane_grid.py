"""Grid of panes: a few pane widgets in computed boxes; views move in and out of them."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.geometry import NULL_SPACING, Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.message import Message
from textual.widget import Widget

from tui.pane_boxes import Box, PlacedSplit

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
            WidgetPlacement(
                Region(box.x, box.y, box.width, box.height), Offset(), NULL_SPACING, child
            )
            for child, box in zip(children, self.boxes, strict=False)
        ]


class PaneGrid(Widget):
    """Holds as many panes as one page shows; more tasks cost no more widgets. The borders between
    panes can be dragged."""

    BLANK = True  # covered by the panes, with each of whose lines Textual paints this widget too

    class Divided(Message):
        """A border was dragged: the lengths of the parts of a split. `done`: it was let go."""

        def __init__(self, split: str, lengths: tuple[int, ...], *, done: bool) -> None:
            self.split, self.lengths, self.done = split, lengths, done
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self._boxes = BoxLayout()
        self.panes: list[LogPane] = []
        """Panes on the screen, in reading order."""
        self._pool: list[LogPane] = []
        self._splits: Sequence[PlacedSplit] = ()
        self._whole = False
        self._dragged: tuple[PlacedSplit, int] | None = None
        self._moved = False

    @property
    def layout(self) -> Layout:
        """Boxes instead of a layout of the style sheet."""
        return self._boxes

    def place(
        self, boxes: list[Box], splits: Sequence[PlacedSplit], *, framed: bool
    ) -> list[LogPane]:
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
        self._splits = splits
        self._whole = framed
        # `refresh` forgets what the ancestors have arranged, not what we have: after a resize
        # the boxes of the old size would stay.
        self._clear_arrangement_cache()
        self.refresh(layout=True)
        return self.panes

    # mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        x, y = event.screen_offset - self.region.offset
        before = int(self._whole)
        for split in reversed(self._splits):  # the inner ones first: their borders are shorter
            number = split.divider_at(x, y, before=before)
            if number is not None and event.button == 1:
                self._dragged, self._moved = (split, number), False
                return

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragged is not None:
            if not self._moved:  # not before: the click of a title needs its own widget
                self.capture_mouse()
            self._moved = True
            self._drag(event, done=False)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragged is not None and self._moved:
            self.release_mouse()
            self._drag(event, done=True)
        self._dragged = None

    def _drag(self, event: events.MouseEvent, *, done: bool) -> None:
        assert self._dragged is not None
        split, number = self._dragged
        x, y = event.screen_offset - self.region.offset
        lengths = split.moved(number, x, y)
        self.post_message(self.Divided(split.split.name, lengths, done=done))
