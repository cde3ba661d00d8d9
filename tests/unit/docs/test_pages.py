"""Names in the manual exist: links, keys, commands, options, settings, tables of TOML."""

from __future__ import annotations

import contextlib
import io
import re
import tomllib

import pytest

from docs import bindings
from launcher.cluster.file_model import TABLES
from launcher.cluster.read import loads
from launcher.cluster.reference import keys
from tests.support.manual import DOCS, Page, pages, simple_commands
from tests.support.paths import REPOSITORY
from tui.config import SETTINGS
from tui.main import parse

PAGES = pages()
BY_PATH = {page.path: page for page in [*PAGES, *map(Page, REPOSITORY.glob("*.md"))]}
_KEY = re.compile(r"<kbd>(.*?)</kbd>")
_PLAIN_KEY = re.compile(r"\b(?:F\d{1,2}|Ctrl-[A-Z])\b")
_SETTING = re.compile(r"(?<!`)`([a-z_]+) = [^`]+`(?!`)")
_TYPED = {"Enter", "Esc", "Space", "Tab", "Shift-Tab", "PgUp", "PgDn", "Home", "End", "F1"}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Page) -> None:
    """To a file of the repository, and to a heading in it where an anchor is named."""
    broken = []
    for link in page.links:
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.path.parent / target).resolve() if target else page.path.resolve()
        found = BY_PATH.get(path)
        if not path.exists() or (anchor and (found is None or anchor not in found.anchors)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    """`docs/index.md` is the one list of all pages, schemas and examples."""
    index = next(page for page in PAGES if page.path == DOCS / "index.md")
    linked = {(index.path.parent / link.partition("#")[0]).resolve() for link in index.links}
    files = [*DOCS.rglob("*.md"), *DOCS.rglob("*.schema.json"), *DOCS.glob("*.jsonl")]
    missing = [path.name for path in files if path.resolve() not in linked]
    assert [name for name in missing if name != "index.md"] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_key_is_bound(page: Page) -> None:
    """What stands in `<kbd>`, and every F key and Ctrl key, is in the table of keys."""
    known = bindings.all_keys() | _TYPED
    named = {*_KEY.findall(page.text), *_PLAIN_KEY.findall(page.prose)}
    assert sorted(named - known - {"&amp;", "&lt;", "&gt;"}) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_of_toml_is_good(page: Page) -> None:
    """A whole cluster file is one for the program, too; other blocks are TOML, and the settings and
    the ids of keys in a `config.toml` exist."""
    for block in page.blocks:
        if block.language != "toml":
            continue
        place = f"{page}:{block.line}"
        try:
            data = tomllib.loads(block.body)
        except tomllib.TOMLDecodeError as error:
            raise AssertionError(f"{place}: {error}") from None
        if "jobs" in data and not block.part:
            loads(block.body, place, page.path.parent)
        elif block.comment == "config.toml":
            assert data.keys() <= SETTINGS.keys(), place
            assert data.get("keys", {}).keys() <= bindings.all_commands(), place


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_key_of_a_file_in_a_sentence_exists(page: Page) -> None:
    """`grace = 5` names a key of the cluster file or of `config.toml`."""
    known = {key.name for table in ("", *TABLES) for key in keys(table)} | set(SETTINGS)
    assert sorted(set(_SETTING.findall(page.prose)) - known) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_line_is_understood(page: Page) -> None:
    """By the argument parser, also those that are not run; these say why."""
    for block in page.blocks:
        if block.not_run is not None:
            assert len(block.not_run) > 5, f"{page}:{block.line}: say why it is not run"
        for line, _ in block.commands():
            for words in simple_commands(line):
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                if words[:1] == ["tfmux"]:
                    _parse(words[1:], f"{page}:{block.line}: {line}")


def _parse(words: list[str], place: str) -> None:
    if not words:
        return
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parse(words)
    except SystemExit as error:
        assert error.code == 0, f"{place}: {said.getvalue()}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_stand_in_blocks_that_are_run(page: Page) -> None:
    """A line that begins with `tfmux` or `$` stands in a `console` block, where tests see it."""
    loose = [
        f"{page}:{block.line}: {line}"
        for block in page.blocks
        if block.language not in ("console", "sh", "text")
        for line in block.body.splitlines()
        if line.startswith(("tfmux ", "$ "))
    ]
    loose += re.findall(r"^(?: {4,}|\t)(?:tfmux|\$) .*", page.prose, re.MULTILINE)
    assert loose == []
