"""Unpacking of hostile streams of results: an error, and nothing written elsewhere."""

from __future__ import annotations

import ast

from tests.support.paths import REPOSITORY

LATER = ("extractall", "extract", "unpack_archive", "data_filter", "tar_filter")


def test_nothing_is_unpacked_by_what_the_oldest_python_lacks() -> None:
    """Nobody in the launching machine's packages calls `tarfile`'s or `shutil`'s unpacking, whose
    filters came with Python 3.11.4."""
    found = []
    for package in ("launcher", "tui"):
        for path in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in LATER:
                    found.append(f"{path}:{node.lineno}")
    assert found == []
