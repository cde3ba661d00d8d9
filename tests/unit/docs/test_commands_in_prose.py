"""Commands in sentences of pages, messages and screens are commands that the program takes."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs import command_line
from tests.support.manual import DOCS, Page, pages, simple_commands
from tests.support.paths import REPOSITORY
from tui.main import _MEANT, COMMANDS, parse

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

PAGES = [*pages(), *(Page(path) for path in sorted(REPOSITORY.glob("*.md")))]
PAGES = list({page.path: page for page in PAGES}.values())
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
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
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


@pytest.mark.parametrize("page", PAGES, ids=str)
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
    for span in _SPAN.findall(prose):
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
