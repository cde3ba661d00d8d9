"""Files and modules that the pages for contributors name exist."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.support.manual import Page
from tests.support.paths import REPOSITORY

CONTRIBUTING = Page(REPOSITORY / "CONTRIBUTING.md")
PAGES = [
    CONTRIBUTING,
    Page(REPOSITORY / "SECURITY.md"),
    *(Page(REPOSITORY / "docs" / f"{name}.md") for name in ("architecture", "protocol", "trainer")),
]
ROOTS = [REPOSITORY, *(REPOSITORY / package for package in ("launcher", "tui", "trainer"))]
_SPAN = re.compile(r"(?<!`)`([\w./]+)`(?!`)")
_ROW = re.compile(r"^\| `([a-z_]+)/` \| (.*) \|$", re.MULTILINE)


def _is_known(name: str) -> bool:
    """A path, or a module behind its package and perhaps before a name that it has."""
    if "/" in name or name.endswith(".py"):
        return any((root / name).exists() for root in ROOTS)
    package, *module = name.split(".")
    for folder in (root / package for root in ROOTS if (root / package).is_dir()):
        path = folder.joinpath(*module)
        text = path.parent.with_suffix(".py")
        if path.is_dir() or path.with_suffix(".py").exists():
            return True
        if text.exists() and re.search(rf"\b{path.name}\b", text.read_text(encoding="utf-8")):
            return True
    return False


def _names(page: Page) -> set[str]:
    """Paths whose folder, and dotted names whose package, is one of this repository."""
    found = set()
    for span in _SPAN.findall(page.prose):
        first, *others = re.split(r"[./]", span)
        if (
            first
            and others
            and (span.endswith(".py") or any((root / first).is_dir() for root in ROOTS))
        ):
            found.add(span)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_named_files_and_modules_exist(page: Page) -> None:
    """`session.control_socket`, `preflight/findings.py`, `tests/support/forked.py`."""
    assert [name for name in sorted(_names(page)) if not _is_known(name)] == []


def test_modules_in_the_map_exist() -> None:
    """Each name in the row of a package of `launcher/` is a module of it."""
    launcher = REPOSITORY / "launcher"
    rows = [row for row in _ROW.findall(CONTRIBUTING.prose) if (launcher / row[0]).is_dir()]
    assert len(rows) > 8
    named = [f"{package}.{name}" for package, text in rows for name in _SPAN.findall(text)]
    assert [name for name in named if not _is_known(name)] == []


def test_each_module_has_a_name_of_its_own() -> None:
    """One word, one room: who reads the name of a module knows which one is meant."""
    paths = [path for root in ROOTS[1:] for path in root.rglob("*.py") if path.stem[:2] != "__"]
    counts = Counter(path.stem for path in paths)
    assert len(paths) > 150
    assert [name for name, count in counts.items() if count > 1] == []
