"""The manual as a site."""

from __future__ import annotations

from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

from docs.site import build, navigation
from tests.support.manual import DOCS


class _Links(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


def test_the_navigation_has_the_pages_of_each_section() -> None:
    """In the order of the index, each once."""
    text = (
        "## One\n[a.md](a.md), [a](a.md)\n## Two\nno page\n## Three\n[b](sub/b.md#c) [d](../D.md)\n"
    )
    trees = navigation(text).split("```{toctree}")[1:]
    assert [tree.split(":caption: ")[1].split("\n")[0] for tree in trees] == ["One", "Three"]
    assert trees[0].count("\na\n") == 1 and "\n../D\n" in trees[1]


def test_a_site_is_built_from_the_manual(tmp_path: Path) -> None:
    """Every page, the version, a search; each link to a file of the site leads to one."""
    assert build(tmp_path / "site") == 0, "a warning is an error: a link, a heading, a table"
    site = tmp_path / "site"
    for page in DOCS.glob("*.md"):
        assert (site / "docs" / f"{page.stem}.html").exists()
    index = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert f"tfmux {version('tfmux')}" in index and 'href="../search.html"' in index
    for page in (site / "docs").glob("*.html"):
        for link in _Links(page).found:
            target = link.partition("#")[0].partition("?")[0]
            if target and "://" not in target and not target.startswith(("mailto:", "data:")):
                assert (page.parent / target).exists(), f"{page.name}: {link}"
