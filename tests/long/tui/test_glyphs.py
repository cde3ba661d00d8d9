"""Characters of the program's own texts: each is drawn, and with one width, by every terminal."""

from __future__ import annotations

import ast
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from rich.cells import cell_len

from tests.support.paths import REPOSITORY

PUNCTUATION = "–—…·×µ−"
GLYPHS = "←↑→↓" + "─━│┃╌╭╮╯╰┏┓┗┛├└┤┬" + "▁▂▃▄▅▆▇█▋░▒" + "■○●▴▸▾◂" + "✓✗"
"""Arrows, box drawing, block elements, geometric shapes and the two marks: those that DejaVu Sans
Mono and Menlo have. None of them has an emoji of its own, which is two cells wide."""
STAND_INS = "␀␊␛␡␦\ufffd"
"""For characters of logs and hosts that a terminal would act on, one cell each."""
SOUGHT = "\ufeff\u200d\x85\u2028\u2029"
"""Looked for in the texts of others, and not shown."""
EMOJI = "▪▫▶◀◻◼◽◾↔↕↖↗↘↙↩↪⌚⌛⏩⏳⏱⚠✂✔✖"


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.lineno, node.value


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """The texts of the program, and where they stand."""
    for package in ("tui", "launcher", "trainer"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix == ".py":
                for line, text in literals(path):
                    yield f"{path.relative_to(root)}:{line}", text
            elif path.suffix in (".tcss", ".toml", ".html", ".css"):
                yield str(path.relative_to(root)), path.read_text(encoding="utf-8")


def foreign(text: str) -> set[str]:
    """The characters of a text that may not be there."""
    return {char for char in text if not char.isascii() and char not in allowed() + SOUGHT}


def allowed() -> str:
    return PUNCTUATION + GLYPHS + STAND_INS


def test_every_glyph_is_drawn_in_one_cell() -> None:
    """Listed are characters of one cell, and none that a terminal may take for an emoji."""
    for char in allowed():
        assert cell_len(char) == 1 and unicodedata.east_asian_width(char) not in "WF", char
        assert char not in EMOJI, unicodedata.name(char)


def test_texts_have_no_other_characters() -> None:
    """A stopwatch, a warning sign and a pair of scissors were drawn two cells wide, or not."""
    found = [
        f"{where}: {sorted(chars)}" for where, text in texts(REPOSITORY) if (chars := foreign(text))
    ]
    assert found == []


def test_the_search_finds_such_characters(tmp_path: Path) -> None:
    """In a literal and in a part of an f-string; what a docstring or a comment says is not seen."""
    module = tmp_path / "tui" / "module.py"
    module.parent.mkdir()
    module.write_text('"""⏱"""\n# ⚠\nname = 1\ntext = f"⏱ {name}"\nother = "漢"\n')
    found = {(where, char) for where, text in texts(tmp_path) for char in foreign(text)}
    assert found == {("tui/module.py:4", "⏱"), ("tui/module.py:5", "漢")}
