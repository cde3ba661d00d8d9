"""Commands that search and filter the lines of the focused pane."""

from __future__ import annotations

from dataclasses import replace

from tui.log.search import Query
from tui.log.search_session import SearchSession
from tui.log.view import LogView
from tui.screens.run.interaction import Interaction
from tui.screens.run.pane_area import PaneArea


class SearchCommands:
    """One search at a time, and a filter for each view."""

    def __init__(self, area: PaneArea, interaction: Interaction) -> None:
        self._area = area
        self._views = area.views
        self._interaction = interaction
        self._session = SearchSession()

    # search

    async def ask_query(self) -> None:
        """Asks what to search for in the focused pane."""
        text = await self._interaction.ask("/")
        if text:
            self._start(Query(text))

    async def step(self, by: int) -> None:
        """The next or previous hit; in another pane the same search begins anew. Asks when there
        has been no search."""
        pane = self._area.pane
        query = self._views.options.query
        if query is None:
            await self.ask_query()
        elif pane and pane.view and not self._session.is_in(pane.view.lines):
            self._start(query)
        else:
            self._session.step(by)

    def follow(self) -> None:
        """Shows the hit that was asked for, once a thread has found it."""
        pane = self._area.pane
        if pane and pane.view:
            hit = self._session.follow(pane.view.lines)
            if hit is not None:
                pane.view.cursor = hit
                pane.go_to(hit)
                pane.redraw()

    def stop(self) -> bool:
        """Ends a search and its marks; False when there was none."""
        if not self._session.stop():
            return False
        self._views.forget_cursors()
        self._area.set_options(replace(self._views.options, query=None))
        return True

    def note(self, view: LogView) -> str:
        """A view's filter and hits, for its title."""
        notes = (self._views.note(view), self._session.note(view.lines))
        return "  ".join(note for note in notes if note)

    # filter

    async def ask_filter(self) -> None:
        """Asks which lines of the focused pane to show."""
        pane = self._area.pane
        if pane is None or pane.view is None:
            return
        before = self._views.filter_of(pane.view.task)
        text = await self._interaction.ask("& lines with (!without)", before)
        pane = self._area.pane
        if text is not None and pane and pane.view:
            self.filter_lines(pane.view, text)
            pane.redraw()

    def filter_lines(self, view: LogView, text: str) -> None:
        """Shows only the lines that hit; no text shows all."""
        self.stop()
        self._views.set_filter(view, text)

    def close(self) -> None:
        """Ends the threads that search and filter."""
        self._session.stop()
        self._views.close()

    def _start(self, query: Query) -> None:
        self.stop()
        pane = self._area.pane
        if pane is None or pane.view is None:
            return
        self._area.set_options(replace(self._views.options, query=query))
        visible = pane.in_sight()
        self._session.start(pane.view.lines, query, visible[-1] if visible else 0)
