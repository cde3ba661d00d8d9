"""Progress of the files that go to hosts and of the results that come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..files.staging import Progress
from ..run.snapshot import HostView


class Transfers:
    """Knows how far each host's files and results are; `changed` is called when one gets on."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._staged: dict[str, Progress] = {}
        self._collected: dict[str, tuple[int, int]] = {}

    def staged(self, host: str, progress: Progress) -> None:
        """So many bytes and files, of so many that it lacks, have gone to a host."""
        self._staged[host] = progress
        self._changed()

    def collected(self, host: str, done: int, total: int) -> None:
        """So many bytes of a host's results, of so many, have come back."""
        self._collected[host] = (done, total)
        self._changed()

    def added_to(self, view: HostView) -> HostView:
        """The host with its progress."""
        staged = self._staged.get(view.name)
        if staged is not None:
            view = replace(
                view,
                staged_bytes=staged.bytes,
                staged_total=staged.total_bytes,
                staged_files=staged.files,
                staged_total_files=staged.total_files,
            )
        if view.name in self._collected:
            done, total = self._collected[view.name]
            view = replace(view, collected_bytes=done, collected_total=total)
        return view

    def describe(self, host: str) -> str:
        """The host's name, with how much of its files is there."""
        staged = self._staged.get(host)
        if staged is None or not staged.total_bytes:
            return host
        part = 100 * staged.bytes // staged.total_bytes
        return f"{host} ({part} % of {staged.total_bytes / 1e6:.1f} MB)"
