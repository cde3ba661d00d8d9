"""Drawing of the packages and of what may import what, from the contracts of import-linter."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_COLUMNS = 84
_PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def drawing() -> Iterator[str]:
    """A box for each root package, its layers in it; each may import what is below it."""
    contracts = _contracts()
    layers = {
        contract["layers"][0].partition(".")[0]: contract["layers"]
        for contract in contracts
        if contract["type"] == "layers"
    }
    yield "```text"
    yield from _box("tui", layers["tui"])
    yield "   │ may import"
    yield "   ▼"
    yield from _box("launcher", layers["launcher"])
    yield ""
    yield from _box("trainer", ["imports nothing of the above, and is imported by none of it"])
    yield "```"


def _box(title: str, layers: list[str]) -> Iterator[str]:
    rows = [
        layer.replace(f"{title}.", "").replace(" | ", "   ").replace(" : ", "   ")
        for layer in layers
    ]
    lines = [line for row in rows for line in _wrapped(row)]
    width = max(len(line) for line in lines)
    yield f"┌─ {title} {'─' * (width - len(title) - 1)}┐"
    yield from (f"│ {line:<{width}} │" for line in lines)
    yield f"└{'─' * (width + 2)}┘"


def _wrapped(row: str) -> list[str]:
    return textwrap.wrap(row, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
