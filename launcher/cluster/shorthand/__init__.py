"""Reader of clusters as people write them: what is pasted, piped, or given as `-H`, `--hostfile`,
`--hosts-from`, `--ps` and `--workers` is understood here, in the same way, or refused.

`understand` gives hosts, or jobs with tasks, and a sentence that says what was understood.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import PurePath

from . import definitions, host_lists, launch_commands, python_texts, specs, task_lists
from .entries import looks_like_host, split
from .understood import WORKER, ListedHost, ListedTask, ShorthandError, Understood
from .variables import Variables

__all__ = [
    "MOST_BYTES",
    "WORKER",
    "ListedHost",
    "ListedTask",
    "ShorthandError",
    "Understood",
    "looks_like_host",
    "split",
    "understand",
    "understand_file",
]

MOST_BYTES = 1 << 20
_LONGEST_SCRIPT = 1 << 15
_MOST_CHARACTERS = 1 << 18
"""A longer text is a list of hosts, or nothing."""
_PROMPT = re.compile(
    r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+[ :][^\s$#%]*)?[$%] (?=\S)|^(?:>>>|\.\.\.) ?",
    re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t]*+(?:```|~~~).*$", re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|'[^']*'")
"""A text in quotes; that of a TF_CONFIG may have several lines."""
_BATCH = re.compile(r"^#SBATCH[ \t]+(?=-)", re.MULTILINE)
_HOST_VARIABLES = (
    "LSB_MCPU_HOSTS", "LSB_HOSTS", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "COBALT_PARTNAME",
    "HOSTS", "HOSTLIST", "HOST_LIST", "NODES", "NODELIST", "NODE_LIST", "SERVERS", "MACHINES",
)  # fmt: skip


def understand(text: str, known: Collection[str] = ()) -> Understood:
    """Understands a text of hosts or tasks. `known` are names that are hosts though they look like
    words: aliases of `ssh_config`, hosts of a file.

    Raises:
        ShorthandError: it is none, or only partly one, or larger than 1 MiB.
    """
    if len(text) > MOST_BYTES:
        raise ShorthandError("larger than 1 MiB: this is not a list of hosts")
    prepared = _prepared(text)
    plain, comments = _without_comments(prepared)
    try:
        program = len(text) <= _MOST_CHARACTERS and python_texts.is_program(prepared)
        found = _found(plain, known, program)
    except RecursionError:
        raise ShorthandError("it is nested too deeply") from None
    if comments:
        line = "the line after # is" if comments == 1 else f"{comments} lines after # are"
        found = replace(found, left_out=(*found.left_out, f"{line} left out"))
    return found


def _found(text: str, known: Collection[str], program: bool) -> Understood:
    if len(text) > _MOST_CHARACTERS:
        if (found := host_lists.find(text, known)) is not None:
            return found
        raise ShorthandError("there is no host in it")
    if (found := definitions.find(text)) is not None:
        return found
    meant: ShorthandError | None = None
    for find in (specs.find, lambda each: task_lists.find(each, known, program=program)):
        try:
            if (found := find(text)) is not None:
                command, others = _command(text)
                return replace(found, command=command, left_out=(*found.left_out, *others))
        except ShorthandError as error:
            meant = meant or error
    if (found := launch_commands.find(text, known)) is not None:
        return found
    if (found := _host_variables(text, known)) is not None:
        return found
    if meant is not None:
        raise meant
    if program:
        raise ShorthandError(
            "it names no hosts: paste the command that starts it, with its lists of hosts"
        )
    if (found := host_lists.find(text, known)) is not None:
        return found
    raise ShorthandError("there is no host in it")


_PROGRAMS = {
    ".py": "a Python program", ".sh": "a shell script", ".ipynb": "a notebook", ".md": "a page",
    ".yaml": "a YAML file", ".yml": "a YAML file", ".json": "a JSON file",
}  # fmt: skip


def understand_file(text: str, name: str) -> Understood:
    """Understands the text of a file; what is refused is told with the kind of the file.

    Raises:
        ShorthandError: see `understand`.
    """
    try:
        return understand(text)
    except ShorthandError as error:
        kind = _PROGRAMS.get(PurePath(name).suffix.lower(), "")
        if "\0" in text:
            raise ShorthandError("this is not text") from None
        if not kind:
            raise
        raise ShorthandError(f"{kind} in which no cluster was found: {error}") from None


def _prepared(text: str) -> str:
    """The text without what a terminal, an editor or a page has added."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    text = _BATCH.sub("sbatch ", _FENCE.sub("", text))
    return _PROMPT.sub("", re.sub(r"\\\n[ \t]*", " ", text))


_COMMENT = re.compile(
    r"\"(?:[^\"\\\n]|\\.){0,2000}+\"|(?<![A-Za-z0-9])'[^'\n]*'|(?P<comment>(?:(?<=\s)|^|(?<=[,;)\]}\"']))#[^\n]*)"
    r"|(?P<line>^[ \t]*//[^\n]*|^[ \t]*;[^\n]*)",
    re.MULTILINE,
)


def _command(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command of a program that gets the cluster, its lists of hosts as placeholders; and of
    the program's other commands each word that the first one has not."""
    if len(text) > _LONGEST_SCRIPT:
        return (), ()
    text = _QUOTED.sub(lambda quoted: "''" if "\n" in quoted[0] else quoted[0], text)
    first: tuple[str, ...] = ()
    others: dict[str, None] = {}
    for words in launch_commands.commands(text):
        if re.fullmatch(r"(?:\S*/)?python[\d.]*", words[0]) and len(words) > 1:
            plain = itertools.takewhile(lambda word: not set(word) <= set("<>&"), words[1:])
            own = ("{python}", *definitions.with_placeholders(list(plain)))
            first = first or own
            if own[1] == first[1]:
                others |= {word: None for word in own if word not in first}
    return first, tuple(f"{word} of another command is left out" for word in others)


def _without_comments(text: str) -> tuple[str, int]:
    """The text without comments, and how many of them there were."""
    count = 0

    def keep(match: re.Match[str]) -> str:
        nonlocal count
        if match["comment"] is None and match["line"] is None:
            return match[0]
        if match[0].lstrip("#/; \t") and not match[0].startswith("#!"):
            count += 1
        return ""

    return _COMMENT.sub(keep, text), count


def _host_variables(text: str, known: Collection[str]) -> Understood | None:
    """The hosts of a variable that schedulers set, or that scripts call so."""
    variables = Variables.of(text)
    names = {name.upper(): name for name in variables}
    for name in _HOST_VARIABLES:
        value = variables.get(names.get(name, ""), "")
        if not value or value.isdecimal():
            continue
        return host_lists.option(variables.fill(value), names[name], known)
    if "MASTER_ADDR" in names:
        raise ShorthandError(
            "MASTER_ADDR names the first host alone: write all of them, such as tf1,tf2"
        )
    return None
