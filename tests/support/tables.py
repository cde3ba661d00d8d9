"""Rows of examples that lie in files: one a line, its cells between tabs, `⏎` for a line's end."""

from __future__ import annotations

from tests.support.paths import REPOSITORY


def tables(file: str) -> dict[str, list[list[str]]]:
    """The rows of a file of `tests/support/rows`, below their headings `== NAME`."""
    found: dict[str, list[list[str]]] = {}
    text = (REPOSITORY / "tests/support/rows" / file).read_text(encoding="utf-8")
    for line in text.split("\n"):
        if line.startswith("== "):
            found[line[3:]] = rows = []
        elif line and not line.startswith("# "):
            rows.append(line.replace("⏎", "\n").split("\t"))
    return found
