"""Modules of each package, with the first sentence of their docstrings: a part of a page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.markdown import table

_ROOT = Path(__file__).parent.parent
_PACKAGES = ("launcher", "tui", "trainer")
_END = re.compile(r"(?<=[.!?])\s")


def markdown() -> Iterator[str]:
    """A heading and a table for each package."""
    for name in _PACKAGES:
        for folder in sorted(path.parent for path in (_ROOT / name).rglob("__init__.py")):
            modules = sorted(set(folder.glob("*.py")) - {folder / "__init__.py"})
            yield f"## {folder.relative_to(_ROOT).as_posix()}"
            yield ""
            yield _sentence(folder / "__init__.py")
            yield ""
            if modules:
                rows = ((f"`{module.stem}`", _sentence(module)) for module in modules)
                yield from table(("module", "is"), rows)
                yield ""


def _sentence(module: Path) -> str:
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(_END.split(text, maxsplit=1)[0].split())
