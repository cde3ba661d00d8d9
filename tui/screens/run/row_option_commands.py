"""Commands about how lines are shown: times, wrapping, TensorFlow's prefix."""

from __future__ import annotations

from dataclasses import replace

from tui.log.rows import Stamps
from tui.screens.run.interaction import Interaction
from tui.screens.run.pane_area import PaneArea


class RowOptionCommands:
    """Changes the options of all views, on the screen only."""

    def __init__(self, area: PaneArea, interaction: Interaction) -> None:
        self._area = area
        self._interaction = interaction

    def next_stamps(self, started: float) -> None:
        """Times before lines: none, time of day, since the start."""
        order = list(Stamps)
        options = self._area.views.options
        stamps = order[(order.index(options.stamps) + 1) % len(order)]
        self._area.set_options(replace(options, stamps=stamps, started=started))
        self._interaction.notify(f"timestamps: {stamps}", timeout=2)

    def toggle_wrap(self) -> None:
        """Wraps long lines, or cuts them at the pane's edge."""
        wrap = not self._area.views.options.wrap
        self._area.set_options(replace(self._area.views.options, wrap=wrap))
        self._interaction.notify(f"wrap: {'on' if wrap else 'off'}", timeout=2)

    def toggle_prefix(self) -> None:
        """Hides TensorFlow's prefix of date and source file, or shows it."""
        hide = not self._area.views.options.hide_prefix
        self._area.set_options(replace(self._area.views.options, hide_prefix=hide))
        self._interaction.notify(
            f"TensorFlow's log prefix: {'hidden' if hide else 'shown'}", timeout=2
        )
