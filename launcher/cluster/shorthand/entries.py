"""Parser of hosts and tasks, `me@tf1`, `tf1:4`, `tf1:2222`, and of words that stand for many:
`tf[1-4]:2222`, `tf1:auto*5`, `tf{1..4}`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from ...frozen import frozen
from ...printable import printable
from ..addresses import AUTO, HERE, LOCALHOST, AddressError, SshDestination, check_host, is_loopback
from ..values import MOST_TASKS
from .understood import ListedTask, ShorthandError

_RANGE = re.compile(
    r"(?P<before>[^\[\]{}\s,]*)(?:\[(?P<inside>[0-9][0-9,:-]*)\]|\{(?P<braces>[0-9][0-9,.]*)\})"
    r"(?P<after>[^\s,]*)"
)
_TIMES = re.compile(r"(?P<entry>.+?)\*(?P<count>[0-9]{1,6})")
_WORD = re.compile(r"(?:\[[0-9,:-]*\]|\{[0-9,.]*\}|[^\s,;])+")
_NO_HOST = re.compile(
    r"(?i:[0-9a-f]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"  # checksums, UUIDs
    r"|(?:sk-)?(?:ssh|ecdsa)-(?:rsa|dss|ed25519|sha2)\S*|[A-Za-z0-9+/=]{41,}"  # keys
    r"|\d+(?:\.\d+)?(?:[KMGTkmgt](?:i?[Bb])?|[smhd]|ms)"  # sizes, times
    r"|\d{4}-\d\d-\d\d\S*|v\d+(?:\.\d+)+\S*|\d+x\w+"  # days, versions
)
"""Words with digits that stand in tables and outputs."""
_LEAST_PORT = 1024
"""From this number on `tf1:NUMBER` is a port: no host has so many slots."""
_SSH_PORT = 22
_SHOWN = 60
_LONGEST_WORD = 2000


@frozen
class Entry:
    """One entry: a host with `slots`, or a task with its `port` where `is_task`."""

    login: SshDestination
    slots: int = 1
    port: int | None = None
    is_task: bool = False
    note: str = ""

    @property
    def task(self) -> ListedTask:
        return ListedTask(self.login, self.port)


def split(text: str) -> list[str]:
    """Splits entries at commas, semicolons and blanks, and expands brackets and stars. Entries are
    not validated: one that is not `host:port` is returned unchanged.

    Raises:
        ShorthandError: the text expands to more than 2,048 entries, or a range is empty.
    """
    found: list[str] = []
    for word in _WORD.findall(text.strip().strip("[]{}()") if _is_list(text) else text):
        for entry in expanded(word.strip("\"'")):
            if entry:
                found.append(entry)
            if len(found) > MOST_TASKS:
                raise ShorthandError(f"it expands to more than {MOST_TASKS} entries")
    return found


def _is_list(text: str) -> bool:
    """Whether it is a list of Python, TOML or bash: `["tf1:2222", "tf2:2222"]`, `(tf1 tf2)`."""
    return bool(
        re.fullmatch(r"\s*[\[(]\s*[\"'].*[\"']\s*,?\s*[\])]\s*", text, re.S)
        or re.fullmatch(r"\s*\([^()]*\)\s*", text)
        or re.fullmatch(r"\s*\[[^\[\]]*[^\d\[\],:-][^\[\]]*\]\s*", text)
    )


def expanded(word: str) -> Iterator[str]:
    """Expands the brackets and the star of one word.

    Raises:
        ShorthandError: a range is empty, or too long.
    """
    if len(word) > _LONGEST_WORD:
        yield word  # no host
        return
    times = _TIMES.fullmatch(word)
    if times:
        for entry in expanded(times["entry"]):
            for _ in range(min(int(times["count"]), MOST_TASKS + 1)):
                yield entry
        return
    match = _RANGE.fullmatch(word)
    inside = (match["inside"] or match["braces"]) if match else ""
    if match is None or (not match["before"] and ":" in inside):
        yield word
        return
    rest = match["after"]
    for number in _numbers(inside):
        for after in expanded(rest) if re.search(r"[\[{]", rest) else [rest]:
            yield f"{match['before']}{number}{after}"


def _numbers(inside: str) -> Iterator[str]:
    """Expands `1-3,07-09`, `1:3` and `1..3`, keeping leading zeros."""
    for part in filter(None, inside.split(",")):
        first, dash, last = re.sub(r"\.\.|:", "-", part, count=1).partition("-")
        if not dash:
            yield first
            continue
        if not (first.isdigit() and last.isdigit()) or int(first) > int(last):
            raise ShorthandError(
                f"the range [{part}] is not in ascending order: write such as [1-4]"
            )
        if int(last) - int(first) >= MOST_TASKS:
            raise ShorthandError(f"the range [{part}] has more than {MOST_TASKS} entries")
        wide = len(first) if first.startswith("0") else 0
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{wide}d}"


def parse(word: str, *, tasks: bool = False) -> Entry:
    """Parses one entry. A number behind a host is a number of slots, or a port where it cannot be
    one; with `tasks` always the port of a task.

    Raises:
        ShorthandError: it is neither host nor task.
    """
    try:
        return parse_entry(word, tasks=tasks)
    except AddressError as error:
        raise ShorthandError(f"{quoted(word)} is not a host: {error}") from None


@lru_cache(4096)
def parse_entry(word: str, *, tasks: bool = False) -> Entry:
    """Parses one entry, see `parse`.

    Raises:
        AddressError: it is neither host nor task.
    """
    if word.startswith("ssh://"):
        return Entry(SshDestination.parse(word[6:].rstrip("/")))
    if tasks:
        word = word.removeprefix("grpc://").removeprefix("http://").rstrip("/")
    if "://" in word:
        SshDestination.parse(word)  # says what to leave out
    user, at, place = word.rpartition("@")
    if place.count(":") > 1 and not place.startswith("["):
        return Entry(SshDestination.parse(f"{user}{at}[{place}]"))
    host, colon, number = place.rpartition(":")
    if not colon or place.endswith("]"):
        return Entry(SshDestination.parse(word))
    login = this_machine(SshDestination.parse(f"{user}{at}{host}"))
    if number == AUTO:
        return Entry(login, is_task=True)
    SshDestination.parse(word)  # says what is wrong with a port
    value = int(number)
    if tasks:
        return Entry(login, port=value, is_task=True)
    if at and (value >= _LEAST_PORT or value == _SSH_PORT):
        return Entry(SshDestination.parse(word))
    if value == _SSH_PORT:
        return Entry(SshDestination.parse(word), note=f"{value} read as the SSH port")
    if value >= _LEAST_PORT:
        return Entry(login, port=value, is_task=True, note=f"{value} read as the port of a task")
    return Entry(login, value)


def this_machine(login: SshDestination) -> SshDestination:
    """Returns `localhost` for every address by which a machine means itself."""
    here = is_loopback(login.host) and login.user is None and login.port is None
    return HERE if here else login


def looks_like_host(word: str, known: Collection[str] = ()) -> bool:
    """Whether a word among others is meant as a host: it is known, or is no word of a language."""
    if word in known or word == LOCALHOST:
        return True
    name = word.rpartition("@")[2]
    if _NO_HOST.fullmatch(word):
        return False
    if not re.search(r"[\d.@:\[]", word) or not re.search(r"[A-Za-z\d]", name):
        return False
    host = name.partition(":")[0] if name.count(":") == 1 else name
    if re.fullmatch(r"[\d.]+", host) and host.count(".") != 3:
        return False
    try:
        check_host(host.strip("[]") if host.startswith("[") else host)
    except AddressError:
        return False
    return not host.endswith((".", ".py", ".sh", ".txt", ".yaml", ".yml", ".json", ".toml"))


def quoted(word: str) -> str:
    """Writes a word for a message."""
    return repr(printable(word, _SHOWN))
