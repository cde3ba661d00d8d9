"""Reference of the command line, from its argument parser."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import partial

from docs.markdown import table
from tui.main import build_parser

_ONE_LINE = partial(argparse.HelpFormatter, width=10_000)
_COLUMNS = 100
_HEADS = ("argument", "is")
_SEVERAL = 3
"""Commands with the same option, from which on it is told once for all of them."""


def commands() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """The parser of each command, and what the command does."""
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            abouts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (parser, abouts[name]) for name, parser in action.choices.items()}
    raise LookupError("the program has no commands")


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """All options of a command, as they are written."""
    return {option for action in parser._actions for option in action.option_strings}


def markdown() -> Iterator[str]:
    """A section for each command, then the options that several commands have."""
    rows = {name: _rows(parser) for name, (parser, _) in commands().items()}
    count = Counter(row for some in rows.values() for row in some)
    several = (row for row, times in count.most_common() if times >= _SEVERAL)
    by_name: dict[str, tuple[str, str]] = {}
    for row in several:  # of one that means two things, what most mean by it
        by_name.setdefault(row[0], row)
    shared = [row for row in count if row in by_name.values()]
    for name, (parser, about) in commands().items():
        yield f"### `tfmux {name}`"
        yield ""
        yield _sentence(about)
        yield ""
        yield "```text"
        yield _usage(parser)
        yield "```"
        yield ""
        if own := [row for row in rows[name] if row not in shared]:
            yield from table(_HEADS, own)
            yield ""
    yield "### Options of several commands"
    yield ""
    yield from table(_HEADS, shared)


def _usage(parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = _ONE_LINE
    usage = parser.format_usage().strip().removeprefix("usage: ").replace(" [-h]", "")
    usage = re.sub(r"\[([^][]*)\]", lambda m: m[0].replace(" ", "\0"), usage)
    lines = textwrap.wrap(usage, _COLUMNS, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def _rows(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value = str(action.metavar or action.dest.upper()) if action.nargs != 0 else ""
        words = [f"`{f'{option} {value}'.strip()}`" for option in action.option_strings]
        about = (action.help or "").replace("%(default)s", str(action.default))
        if action.choices:
            about += f": {', '.join(f'`{choice}`' for choice in action.choices)}"
        rows.append((", ".join(words) or f"`{value}`", about))
    return rows


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
