"""Finder of task lists in flags and variables: `--ps_hosts=…`, `WORKER_HOSTS="…"`, `ps: […]`, the
defaults of a program's flags, also among the other words of a script."""

from __future__ import annotations

import re
from collections.abc import Collection

from ...printable import printable
from ..roles import JOB_WORDS
from . import python_texts
from .entries import Entry, looks_like_host, parse, quoted, split
from .understood import ListedTask, ShorthandError, Understood
from .variables import Variables

_LISTS = (
    r"host|hosts|hostlist|host_list|node|nodes|address|addresses|addrs|list|endpoints|machines|ips"
)
_KEY = re.compile(rf"(?P<job>[a-z][a-z0-9_]*?)(?P<list>_(?:{_LISTS}))?")
_WORD = r"[^\s,;\"'()\[\]&|<>]+"
_PAIR = re.compile(
    r"(?<![\w.$/-])(?P<flag>--?)?(?P<key>[A-Za-z][\w-]{0,80}+)"
    r"(?P<sign>\s*\+?=\s*|:[ \t]+|[ \t]+(?=[\"'\w\[($<.]))"
)
_VALUE = re.compile(
    r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\([^)]*\)|\$\{?\w+(?:\[@\])?\}?|"
    rf"{_WORD}(?:[,;][ ]?(?=[\w$\[.@:-]*[:$]){_WORD}|,{_WORD})*"
)
_LONG = 500
"""Characters of a value from which on nothing is looked for inside it."""
_DEFINED = re.compile(r"DEFINE_\w+\(\s*([\"'])([\w-]+)\1\s*,\s*(?:default\s*=\s*)?")
_ARGUMENT = re.compile(r"(?:add_argument|option)\(\s*[\"']--([\w-]+)[\"'][^()]*?\bdefault\s*=\s*")
_NAMED_VALUE = re.compile(r"\bname:\s*[\"']?(\w+)[\"']?\s*\n\s*value:\s*")
_FLAG_ITEM = re.compile(r"([\"'])(--?[\w-]+)\1\s*,\s*(?=[\"'])")
_SET = re.compile(r"\b(?:setenv|ENV|set\s+-gx|set\s+-x)[ \t]+(\w+)[ \t]+(?=[\"'\w\[(])")
_ONLY_JOBS = re.compile(r"(?:^|[\s;]+)(?=(?:--)?[A-Za-z][A-Za-z0-9_-]*=)")
_ONLY_JOB = re.compile(
    r"(?:--)?(?P<job>[A-Za-z][A-Za-z0-9_-]*?)(?:_hosts)?=\s*(?P<list>\S.*)", re.S
)
_ADDRESSES = re.compile(r"\S*:(?:\d+|auto)(?:\*\d+)?")


def find(text: str, known: Collection[str] = (), *, program: bool = False) -> Understood | None:
    """Finds the task lists of a text; None where there are none. In a `program` only literals are
    lists, not expressions.

    Raises:
        ShorthandError: a list is meant, and cannot be understood, or has two values.
    """
    if (jobs := _only_jobs(text)) is not None:
        return jobs
    plain = _DEFINED.sub(r" --\2=", text)
    plain = _ARGUMENT.sub(r" --\1=", plain)
    plain = _NAMED_VALUE.sub(r"\1=", plain)
    plain = _FLAG_ITEM.sub(r"\2 ", plain)
    plain = _SET.sub(r"\1=", plain)
    variables = Variables.of(plain)
    found: dict[str, tuple[ListedTask, ...]] = {}
    notes: dict[str, None] = {}
    unknown = ""
    masters: dict[str, tuple[ListedTask, ...]] = {}
    empty = ""
    odd: dict[str, str] = {}
    computed: dict[str, str] = {}
    end = 0
    for match in _PAIR.finditer(plain):
        job, listed = _job(match) if match.start() >= end else ("", False)
        value = _VALUE.match(plain, match.end()) if job else None
        if value is None:
            if job and listed and match["flag"]:
                odd[job] = plain[match.end() :].partition("\n")[0].partition(" ")[0]
            continue
        if program and not _is_literal(value[0]):
            shown = python_texts.expression(plain, match.end())
            computed.setdefault(job, f"{match['key']} is {printable(shown, 60)}")
            continue
        try:
            tasks = _tasks(value[0], variables, known, listed)
        except ShorthandError as error:
            end = value.end() if len(value[0]) > _LONG else end
            unknown = unknown or str(error)
            continue
        if not tasks:
            end = value.end() if len(value[0]) > _LONG else end
            empty = empty or (match["key"] if listed else "")
            if listed and match["flag"] and not set(value[0]) <= set("'\"[]()"):
                odd[job] = value[0]
            continue
        end = value.end()
        if job == "master" and not listed:
            masters[job] = tasks
            continue
        before = found.get(job, tasks)
        if "+" in match["sign"]:
            tasks = found.get(job, ()) + tasks
        elif before != tasks:
            if match["flag"]:
                raise ShorthandError(f"{printable(job, 60)} has two different values: leave one")
            notes[f"of two values of {printable(job, 60)} the last one is taken"] = None
        found[job] = tasks
    missing = [text for job, text in computed.items() if job not in found and job != "master"]
    if missing or (computed and not found):
        text = next(iter(missing or computed.values()))
        raise ShorthandError(f"{text}, which only the program knows: paste its value")
    if found:
        if unknown:
            raise ShorthandError(unknown)
        for job, text in odd.items():
            if job not in found:
                raise ShorthandError(
                    f"{quoted(text)} is not a list of hosts of {printable(job, 60)}"
                )
        return Understood("flags and variables", found | masters, notes=tuple(notes))
    if unknown or empty:
        raise ShorthandError(unknown or f"{printable(empty, 60)} names no host in this text")
    return None


def _job(match: re.Match[str]) -> tuple[str, bool]:
    """The job that a key means, and whether the key says that its value is a list of hosts."""
    key = _KEY.fullmatch(match["key"].lower().replace("-", "_"))
    if key is None or (
        "flag" in match.groupdict() and match["sign"].isspace() and not match["flag"]
    ):
        return "", False
    listed = key["list"] is not None and key["list"] not in ("_node", "_address")
    if key["job"] in JOB_WORDS:
        if key["job"].startswith("master") and key["list"] not in (None, "_hosts", "_host"):
            return "", False
        return JOB_WORDS[key["job"]], listed
    # `--gpu_hosts=a:1`: a job of any name.
    return (key["job"], listed) if key["list"] == "_hosts" and match["flag"] else ("", False)


def _is_literal(value: str) -> bool:
    """Whether a value in a program is a text or a list, or stands in a command: no expression has
    a port."""
    return python_texts.is_literal(value) or all(map(_ADDRESSES.fullmatch, split(value)))


def _tasks(
    value: str, variables: Variables, known: Collection[str], listed: bool
) -> tuple[ListedTask, ...]:
    """The tasks of a value; none where it is about something else.

    Raises:
        ShorthandError: it has a variable without a value, or something that is no host.
    """
    bare = value[1:-1] if value[:1] in ("'", '"') else value
    if "$(" in bare or "`" in bare:
        raise ShorthandError("a list is computed by the shell: paste its value")
    if re.search(r"\$[{\w]", bare):
        bare = variables.fill(bare)
    entries: list[Entry] = []
    words = split(bare.removesuffix(".split"))
    for word in words:
        try:
            entries.append(parse(word, tasks=True))
        except ShorthandError:
            if listed and _ADDRESSES.fullmatch(words[0]):
                raise
            return ()
    if not all(e.is_task for e in entries) and not listed:
        # `--workers=4`, `worker=true`
        if not all(
            e.is_task or looks_like_host(w, known) for e, w in zip(entries, words, strict=True)
        ):
            return ()
    if any(word.isdecimal() for word in words):
        return ()
    return tuple(entry.task for entry in entries)


def _only_jobs(text: str) -> Understood | None:
    """Jobs of any names, where the text has nothing else: `ps=tf1:2222 gpu=tf2:2222,tf3:2222`."""
    found: dict[str, tuple[ListedTask, ...]] = {}
    for part in filter(None, _ONLY_JOBS.split(re.sub(r"\s+", " ", text.strip()))):
        match = _ONLY_JOB.fullmatch(part.strip())
        if match is None or "$" in part:
            return None
        words = split(match["list"].strip("\"'"))
        if not words or not all(map(_ADDRESSES.fullmatch, words)):
            return None
        try:
            tasks = tuple(parse(word, tasks=True).task for word in words)
        except ShorthandError:
            return None
        name = match["job"].lower().replace("-", "_").removesuffix("_hosts")
        job = JOB_WORDS.get(name, match["job"])
        if found.get(job, tasks) != tasks:
            return None
        found[job] = tasks
    return Understood("a line of jobs", found) if found else None
