"""Names in pages exist: links, keys, commands, settings, tables of TOML, codes, modules, demos."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs import bindings, command_line
from launcher.cluster.file_model import TABLES
from launcher.cluster.read import loads
from launcher.cluster.reference import keys
from launcher.preflight.findings import Reach
from tests.support.manual import DOCS, Page, pages, simple_commands
from tests.support.paths import REPOSITORY
from trainer.modes import MODES
from tui.config import SETTINGS
from tui.main import _MEANT, COMMANDS, parse

# Names in the manual exist: links, keys, commands, options, settings, tables of TOML.

PAGES = pages()
BY_PATH = {page.path: page for page in [*PAGES, *map(Page, sorted(REPOSITORY.glob("*.md")))]}
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


# Files and modules that the pages for contributors name exist.

CONTRIBUTING = Page(REPOSITORY / "CONTRIBUTING.md")
CONTRIBUTED = [
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


@pytest.mark.parametrize("page", CONTRIBUTED, ids=str)
def test_named_files_and_modules_exist(page: Page) -> None:
    """`process.control_socket`, `preflight/findings.py`, `tests/support/forked.py`."""
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


# The table of codes in `docs/preflight.md` is that of the program.

_GIVEN = re.compile(
    r'(?:blocking|warning)\(\s*[\w.]+,\s*"([a-z-]+)"|\bcode(?:: str)? ?= ?"([a-z-]+)"'
)
_GENERAL = {"host-failed", "unreachable"}
"""Codes of general errors: where one is raised, it gets a code of its own."""


def _source() -> str:
    return "\n".join(path.read_text() for path in sorted((REPOSITORY / "launcher").rglob("*.py")))


def _documented() -> set[str]:
    text = (DOCS / "preflight.md").read_text()
    section = text.partition("\n## Codes\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {code for cell in cells for code in re.findall(r"`([a-z-]+)`", cell)}


def test_every_code_of_the_program_is_in_the_table() -> None:
    """The table has the codes of findings, and of the errors of a host that become findings."""
    given = {code for pair in _GIVEN.findall(_source()) for code in pair if code} - _GENERAL
    assert len(given) > 40
    assert given - _documented() == set()


def test_every_code_in_the_table_is_one_of_the_program() -> None:
    """Codes of the matrix are made from its outcomes."""
    source = _source()
    reach = {f"reach-{outcome}" for outcome in Reach} - {"reach-ok", "reach-unknown"}
    documented = _documented()
    assert reach <= documented
    assert {code for code in documented - reach if f'"{code}"' not in source} == set()


# `docs/tutorials.md` leads from the tutorials' programs to files, names and demos that exist.

PAGE = Page(REPOSITORY / "docs" / "tutorials.md")
_PLACE = re.compile(r"`((?:trainer|docs|tui)/[\w/.-]+)`((?:: |, )(?:`\w+`(?:, )?)+)?")
PLACES = [
    (path, name)
    for path, names in _PLACE.findall(PAGE.prose)
    for name in re.findall(r"`(\w+)`", names) or [""]
]
DEMOS = {path.stem for path in (REPOSITORY / "tui" / "demos").glob("*.toml")}


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_place_in_the_source_exists(path: str, name: str) -> None:
    """The file, and what is named behind it: a function, a class or a constant of its module."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert not name or re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", text, re.MULTILINE)


def test_the_second_column_names_modes_and_demos() -> None:
    rows = [line.split("|") for line in PAGE.prose.splitlines() if line.count("|") == 4]
    named = {
        word
        for row in rows
        if "trainer/" in row[3]
        for word in re.findall(r"`([a-z-]+)(?: --\w+)?`", row[2])
    }
    assert len(named) > 12
    assert named <= DEMOS | set(MODES)


def test_the_page_names_each_mode_that_trains() -> None:
    """TensorFlow 2's strategies have no tutorial of TensorFlow 1."""
    later = {"ps-strategy", "all-reduce", "evaluate", "tf1"}
    words = {word for span in re.findall(r"`([^`]+)`", PAGE.prose) for word in span.split()}
    assert {mode for mode in MODES if " " not in mode} - later <= words


# Commands in sentences of pages, messages and screens are commands that the program takes.

NOT_PARSED = {
    "import tensorflow as tf": ("docs/trainer.md", "a line of Python, no command"),
    "tfmux": ("README.md", "opens the home screen: there is no word for the parser"),
    "tfmux RUN RUN": (
        "tui/commands/which_run.py",
        "the command that was typed, and a run, are put there when it speaks",
    ),
    "ps | grep | xargs kill -9": (
        "docs/from-tmux.md",
        "programs of the shell, as one uses in tmux",
    ),
}
"""Texts that look like commands and are not parsed: a place where they stand, and why."""
SOURCES = sorted(
    path
    for part in ("launcher", "tui")
    for path in (REPOSITORY / part).rglob("*.py")
    if "tfmux " in path.read_text(encoding="utf-8")
)
EXAMPLES = sorted(
    path
    for folder in (DOCS / "examples", REPOSITORY / "tui/demos", REPOSITORY / "launcher/cluster")
    for path in folder.rglob("*")
    if path.suffix in (".toml", ".yaml", ".yml", ".sh") or folder == DOCS / "examples"
    if path.is_file() and path.suffix != ".pyc"
)
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_SHORT = re.compile(rf"(?:{'|'.join(COMMANDS)}) \S")
_MAKE = re.compile(r"make\b(?! sure)")
_TARGET = re.compile(r"^([\w-]+):", re.MULTILINE)
_WORD = re.compile(r"\S+")
_FIRST = re.compile(r"[\w-]\S*")
_OWN = re.compile(r"RUN|FILE|TASK|NAME|HOST|DIR|PATTERN|N|…|-\S*|\S+\.toml|\d+|'[^']*'")
_FILLED = "RUN"
"""Stands for whatever a message puts there."""


@pytest.mark.parametrize("text", NOT_PARSED)
def test_what_is_not_parsed_is_still_there(text: str) -> None:
    """The table is no longer than it needs to be."""
    where, why = NOT_PARSED[text]
    path = REPOSITORY / where
    found = _of_page(Page(path)) if path.suffix == ".md" else _of_source(path)
    assert text in found and len(why.split()) > 3


@pytest.mark.parametrize("page", BY_PATH.values(), ids=str)
def test_commands_in_sentences_of_a_page(page: Page) -> None:
    """`tfmux kill --all`, in short `kill --all`; `make demo` and `python -m MODULE` of ours."""
    assert [wrong for text in _of_page(page) if (wrong := _problem(text))] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_commands_in_messages(path: Path) -> None:
    """In all texts of the code that are no docstrings: what people read on stderr, in help and on
    screens."""
    assert [wrong for text in _of_source(path) if (wrong := _problem(text))] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_commands_in_examples(path: Path) -> None:
    """In comments of demos, templates and examples."""
    text = path.read_text(encoding="utf-8")
    assert [wrong for each in _of_text(text) if (wrong := _problem(each))] == []


@pytest.mark.parametrize(
    ("sentence", "commands"),
    [
        ("end it: tfmux kill RUN", ["tfmux kill RUN"]),
        ("tfmux attach comes back to it.", ["tfmux attach"]),
        (
            "tfmux attach RUN shows it, tfmux kill RUN ends it",
            ["tfmux attach RUN", "tfmux kill RUN"],
        ),
        ("`tfmux check` names it", ["tfmux check"]),
        ("tfmux kill RUN --file FILE takes a copy", ["tfmux kill RUN --file FILE"]),
        ("tfmux copies no .git", []),
        ("tfmux sets TF_CONFIG for it", []),
        ("tfmux (protocol 3)", []),
        ("(tfmux run --workdir ''), to copy", ["tfmux run --workdir ''"]),
        ("such as tfmux run -n 4 -- python a.py", ["tfmux run -n 4 -- python a.py"]),
        ("tfmux resume RUN", ["tfmux resume RUN"]),
        ("tfmux stop ends it", ["tfmux stop"]),
        ("(tfmux check a.toml --accept-new)   # trusts", ["tfmux check a.toml --accept-new"]),
        ("tfmux run -- mpirun -n 2 train.py", ["tfmux run -- mpirun -n 2 train.py"]),
    ],
)
def test_where_a_command_ends_in_a_sentence(sentence: str, commands: list[str]) -> None:
    """With its options and placeholders; other verbs behind the program's name are none of it."""
    assert list(_of_text(sentence)) == commands


@pytest.mark.parametrize(
    "text",
    [
        "tfmux resume RUN",
        "tfmux check",
        "tfmux kill --al",
        "kill --everything",
        "tfmux attach --file",
        "tfmux up FILE | tfmux grep",
        "make everything",
        "python -m docs.references",
    ],
)
def test_what_cannot_be_typed_is_found(text: str) -> None:
    """By the parser that users have."""
    assert _problem(text)


def _of_page(page: Page) -> Iterator[str]:
    """What stands between backticks in sentences and tables. A heading names a command, and does
    not tell anybody to type it."""
    prose = re.sub(r"^#+ .*$", "", page.prose, flags=re.MULTILINE)
    for span in _CODE.findall(prose):
        text = " ".join(span.replace("\\|", "|").split())
        if text.startswith(("tfmux ", "python -m ")) or text == "tfmux":
            yield text
        elif _MAKE.match(text) or _SHORT.match(text):
            yield text


def _of_source(path: Path) -> Iterator[str]:
    """Commands in the texts of a module that are no docstrings; a value that is put into a text
    is a placeholder where it is a word of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    others: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            others.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            others |= {id(each) for each in ast.walk(node) if each is not node}
    for node in ast.walk(tree):
        if id(node) in others:
            continue
        if isinstance(node, ast.JoinedStr):
            yield from _of_text("".join(map(_filled, node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _of_text(re.sub(r"\{\w+\}", _FILLED, node.value))


def _filled(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else _FILLED


def _of_text(text: str) -> Iterator[str]:
    """Commands in a sentence. Between backticks they end with those; else behind the last option,
    placeholder or file."""
    for found in re.finditer(r"(`?)\btfmux(?= )", text):
        rest = text[found.end() :]
        if found[1]:
            yield " ".join(f"tfmux{rest.partition('`')[0]}".split())
            continue
        words = list(_words(rest))
        first = words[0] if words else ""
        if len(words) > 1 or first in COMMANDS or first in _MEANT or first.startswith("--"):
            yield " ".join(["tfmux", *words])


def _words(text: str) -> Iterator[str]:
    """The first word, and those behind it that are surely the command's."""
    for at, found in enumerate(_WORD.finditer(text)):
        word = found[0].rstrip(".,;:)")
        if word == "--":
            yield from text[found.start() :].split()
            return
        if not (_OWN if at else _FIRST).fullmatch(word):
            return
        yield word
        if word != found[0]:
            return


@cache
def _problem(text: str) -> str:
    """What keeps people from typing it; empty if nothing does."""
    if text in NOT_PARSED:
        return ""
    if text.startswith("make"):
        names = [word for word in text.split()[1:] if "=" not in word]
        known = _TARGET.findall((REPOSITORY / "Makefile").read_text())
        unknown = [name for name in names if name not in known]
        return f"{text}: the Makefile has no {unknown[0]}" if unknown else ""
    if text.startswith("python -m "):
        module = text.split()[2]
        path = REPOSITORY.joinpath(*module.split("."))
        ours = (REPOSITORY / module.partition(".")[0]).is_dir()
        is_there = path.is_dir() or path.with_suffix(".py").exists()
        return "" if is_there or not ours else f"{text}: there is no such module"
    if not text.startswith("tfmux"):
        text = f"tfmux {text}"
    for words in simple_commands(text):
        if words[0] == "tfmux" and (wrong := _usage_error(words[1:])):
            return f"{text}: {wrong}"
    return ""


def _unknown_options(words: list[str]) -> set[str]:
    """Options of a command that it has only by a longer name: the parser completes them."""
    if not words or words[0] not in COMMANDS:
        return set()
    known = command_line.options_of(_parsers()[words[0]][0])
    mine = words[: words.index("--")] if "--" in words else words
    return {word for word in mine if word.startswith("-") and word != "-"} - known


_parsers = cache(command_line.commands)


def _usage_error(words: list[str]) -> str:
    if unknown := _unknown_options(words):
        return f"no {', '.join(unknown)}"
    said = io.StringIO()
    filled = [re.sub(r"\bN\b", "1", word) for word in words]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parse(["file.toml" if word == "FILE" else word for word in filled])
    except SystemExit as error:
        return said.getvalue() if error.code else ""
    return ""
