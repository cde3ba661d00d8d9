"""Pages of the manual as tests read them: blocks, links, headings, keys.

A comment in the line above a block says what a test does with it:

    <!-- file: NAME -->      it is written into the folder in which the page's commands run
    <!-- not run: REASON --> its commands are only parsed
    <!-- part, … -->         it is no cluster file without hosts that are named elsewhere

and `<!-- needs: four hosts -->` anywhere says that a page's commands need the testbed, or
`<!-- needs: podman -->` that they start containers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.paths import REPOSITORY

DOCS = REPOSITORY / "docs"
_FENCE = re.compile(
    r"(?:^<!-- (?P<comment>[^>]*?) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n"
    r"(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
_SHELL = ("console", "sh", "bash")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line in the page."""

    language: str
    body: str
    comment: str
    line: int

    @property
    def file(self) -> str:
        """The name under which its text is written; empty for most."""
        return self._said("file")

    @property
    def not_run(self) -> str | None:
        """Why its commands are not run; None when they are."""
        return self._said("not run") if self.comment.startswith("not run") else None

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command after a `$ `, and the lines of output that stand below it."""
        if self.language not in _SHELL:
            return
        words, output = "", list[str]()
        for line in self.body.splitlines():
            if line.startswith("$ "):
                if words:
                    yield words, output
                words, output = line[2:], []
            elif words.endswith("\\"):
                words += f"\n{line}"
            elif words:
                output.append(line.rstrip())
        if words:
            yield words, output

    @property
    def part(self) -> bool:
        """The block is no whole cluster file: its hosts are named elsewhere."""
        return self.comment.startswith("part")

    def _said(self, kind: str) -> str:
        head, _, text = self.comment.removeprefix("part, ").partition(": ")
        return text if head == kind else ""


class Page:
    """One page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    def __str__(self) -> str:
        return str(self.path.relative_to(REPOSITORY))

    @cached_property
    def blocks(self) -> list[Block]:
        """All fenced blocks."""
        return [
            Block(
                found["language"],
                "\n".join(line.removeprefix(found["indent"]) for line in found["body"].split("\n")),
                (found["comment"] or "").strip(),
                self.text[: found.start("body")].count("\n") + 1,
            )
            for found in _FENCE.finditer(self.text)
        ]

    @cached_property
    def prose(self) -> str:
        """The text without the blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def links(self) -> list[str]:
        """The targets of all links."""
        text = re.sub(r"`[^`\n]*`", "", self.prose)
        return [first or second for first, second in _LINK.findall(text)]

    @cached_property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub makes them."""
        found: dict[str, int] = {}
        anchors = set()
        for heading in _HEADING.findall(self.prose):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            number = found.get(anchor, 0)
            found[anchor] = number + 1
            anchors.add(f"{anchor}-{number}" if number else anchor)
        return anchors

    @property
    def runs(self) -> bool:
        """The page has commands that a test runs."""
        return any(block.not_run is None for block in self.blocks if list(block.commands()))

    @property
    def needs_hosts(self) -> bool:
        """Its commands need the four hosts."""
        return "<!-- needs: four hosts -->" in self.text

    @property
    def needs_podman(self) -> bool:
        """Its commands start containers."""
        return "<!-- needs: podman -->" in self.text


def pages() -> list[Page]:
    """All pages."""
    return [Page(REPOSITORY / "README.md"), *map(Page, sorted(DOCS.rglob("*.md")))]


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line, without redirections and the shell's own words."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    skip = False
    for word in lexer:
        if word == "#":
            break
        punctuation = bool(word) and set(word) <= set("<>;|&()")
        if punctuation and set(word) & set("<>"):
            skip = True
            if words and words[-1].isdigit():
                words.pop()
        elif punctuation:
            if words:
                yield words
            words = []
        elif skip:
            skip = False
        else:
            words.append(word)
    if words:
        yield words
