"""A snapshot as JSON: the last record of a journal, and what a launcher tells its clients.

Figures that are no number (a loss of NaN) pass through: Python's JSON writes and reads them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ..run.snapshot import Snapshot
from .json_lines import printable_values


@cache
def _form() -> TypeAdapter[Snapshot]:
    return TypeAdapter(Snapshot)


def encode_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as a JSON object."""
    encoded: dict[str, Any] = _form().dump_python(snapshot, mode="json")
    return encoded


def decode_snapshot(raw: Any) -> Snapshot:
    """Reads a snapshot; its texts are made printable.

    Raises:
        ValueError: it is no snapshot, or one of another version of this program.
    """
    return _form().validate_python(printable_values(raw))
