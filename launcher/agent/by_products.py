"""By-products of programs, known by their names alone: they are not kept as results.

Whether git ignores a file says nothing about that: it ignores checkpoints, too.
"""

from __future__ import annotations

from typing import Collection

BYTECODE = "__pycache__"
"""Folder of compiled Python."""
BYTECODE_SUFFIXES = (".pyc", ".pyo")
ENVIRONMENT = ".venv"
"""Usual name of a virtual environment."""
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What a virtual environment of any name has in its folder."""
CACHES = (
    ".cache/pip",
    ".cache/pypoetry",
    ".cache/uv",
    ".eggs",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    "node_modules",
)
"""Folders of packages, and of tools that can make them again."""
_FOLDERS = (BYTECODE, ENVIRONMENT, *CACHES)


def folder_by_product(path: str, names: Collection[str]) -> str:
    """Returns how a folder is called that is a by-product, in which these names are; empty if it is
    none."""
    for name in _FOLDERS:
        if path == name or path.endswith(f"/{name}"):
            return name
    if any(mark in names for mark in ENVIRONMENT_MARKS):
        return path
    return ""


def file_by_product(name: str) -> str:
    """Returns the kind of a file that is a by-product; empty if it is none."""
    return next((f"*{suffix}" for suffix in BYTECODE_SUFFIXES if name.endswith(suffix)), "")
