"""Parser of short forms of task and host lists: `host:port` lists, flags of a script, `TF_CONFIG`.

`tf[1-4]:2222` is four tasks, `tf1:auto*5` is five. Entries are not validated: one that is not
`host:port` is returned unchanged, for the cluster file's own checks to report.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .addresses import LOCALHOST, SshDestination, TaskAddress, check_host
from .values import MOST_TASKS

_RANGE = re.compile(r"(?P<before>[^\[\]\s,]*)\[(?P<inside>[0-9][0-9,-]*)\](?P<after>[^\s,]*)")
_TIMES = re.compile(r"(?P<entry>.+?)\*(?P<count>[0-9]{1,6})")
_WORD = re.compile(r"(?:\[[0-9,-]*\]|[^\s,;])+")
_JOB = re.compile(r"(?:--)?(?P<job>[A-Za-z][A-Za-z0-9_-]*?)(?:_hosts)?[=:]\s*(?P<list>\S.*)", re.S)
_FLAG = re.compile(
    r"--(?P<job>[A-Za-z][A-Za-z0-9_-]*?)_hosts[=\s]\s*"
    r"[\"']?(?P<list>[^\s,\"']+(?:,\s*[^\s,\"']+)*)"
)
"""A flag of a script, such as `--worker_hosts=tf2:2222,tf3:2222`."""
_NUMBER = re.compile(r"\d+")


class ShorthandError(ValueError):
    """The text cannot be parsed."""


def entries(text: str) -> list[str]:
    """Parses entries separated by commas, semicolons or blanks, and expands brackets and stars.

    Raises:
        ShorthandError: it expands to more than 2,048 entries, or a range is empty.
    """
    found: list[str] = []
    for word in _WORD.findall(text.strip().strip("[]{}()") if _is_list(text) else text):
        for entry in _expanded(word.strip("\"'")):
            if entry:
                found.append(entry)
            if len(found) > MOST_TASKS:
                raise ShorthandError(f"it expands to more than {MOST_TASKS} entries")
    return found


def spec(text: str) -> dict[str, list[str]] | None:
    """Parses jobs with their tasks: a `TF_CONFIG`, only its `cluster`, `ps=tf1:2222
    worker=tf2:2222,tf3:2222`, or `--ps_hosts=… --worker_hosts=…`, also among the other words of a
    script. None for a plain list of tasks.

    Raises:
        ShorthandError: it looks like a `TF_CONFIG`, but is not one.
    """
    stripped = text.strip()
    stripped = re.sub(r"^(?:export\s+)?TF_CONFIG\s*=\s*", "", stripped)
    if stripped[:1] in ("'", '"') and stripped[-1:] == stripped[:1] and "{" in stripped:
        stripped = stripped[1:-1]
    if stripped.startswith("{"):
        return _from_json(stripped)
    if flags := _FLAG.findall(stripped):
        return {job: entries(listed) for job, listed in flags}
    found: dict[str, list[str]] = {}
    # A new job begins at `name=`; its list ends where the next one begins.
    parts = re.split(r"(?:^|[\s;]+)(?=(?:--)?[A-Za-z][A-Za-z0-9_-]*=)", stripped)
    for part in filter(None, parts):
        match = _JOB.fullmatch(part.strip())
        if match is None or "=" not in part:
            return None
        found[match["job"]] = found.get(match["job"], []) + entries(match["list"])
    return found or None


def hosts(text: str) -> dict[str, str]:
    """Parses host names and their SSH destinations, such as `root@tf[1-4], gpu7:2200`.

    The name is the destination's host; for an IP address `host1`, `host2`, … An entry that is not
    a destination is kept unchanged, for the checks to report.

    Raises:
        ShorthandError: see `entries`.
    """
    found: dict[str, str] = {}
    for entry in entries(text):
        try:
            host = SshDestination.parse(entry).host
        except ValueError:
            host = entry
        found[host_name(host, found)] = entry
    return found


def missing_hosts(tasks: Mapping[str, list[str]], known: Mapping[str, Any]) -> list[str]:
    """Lists the hosts that are used by tasks and not defined."""
    missing: dict[str, None] = {}
    for task in (task for job in tasks.values() for task in job):
        try:
            host = TaskAddress.parse(task).host
        except ValueError:
            continue
        if host != LOCALHOST and host not in known:
            missing[host] = None
    return list(missing)


def _is_list(text: str) -> bool:
    """Whether it is a list of Python or TOML: `["tf1:2222", "tf2:2222"]`."""
    return bool(re.fullmatch(r"\s*[\[(]\s*[\"'].*[\"']\s*,?\s*[\])]\s*", text, re.S))


def _expanded(word: str) -> Iterator[str]:
    times = _TIMES.fullmatch(word)
    if times:
        for entry in _expanded(times["entry"]):
            for _ in range(min(int(times["count"]), MOST_TASKS + 1)):
                yield entry
        return
    match = _RANGE.fullmatch(word)
    if match is None or (not match["before"] and ":" in match["inside"]):
        yield word
        return
    for number in _numbers(match["inside"]):
        for rest in _expanded(match["after"]) if "[" in match["after"] else [match["after"]]:
            yield f"{match['before']}{number}{rest}"


def _numbers(inside: str) -> Iterator[str]:
    """Expands `1-3,07-09`, keeping leading zeros."""
    for part in filter(None, inside.split(",")):
        first, dash, last = part.partition("-")
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


def _from_json(text: str) -> dict[str, list[str]]:
    try:
        read = json.loads(text)
    except ValueError:
        try:
            read = json.loads(text.replace("'", '"'))  # as Python prints a dictionary
        except (ValueError, RecursionError) as error:
            raise ShorthandError(f"not a TF_CONFIG: {error}") from None
    except RecursionError:
        raise ShorthandError("not a TF_CONFIG: it is nested too deeply") from None
    cluster = read.get("cluster", read) if isinstance(read, dict) else None
    if not isinstance(cluster, dict) or not cluster:
        raise ShorthandError(
            'the TF_CONFIG has no cluster: write such as {"cluster": {"worker": ["tf1:2222"]}}'
        )
    found: dict[str, list[str]] = {}
    for job, places in cluster.items():
        if isinstance(places, dict):  # a sparse cluster: index → address
            places = list(places.values())
        if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
            raise ShorthandError(
                f'the tasks of {job[:60]} are not a list: write such as ["tf1:2222"]'
            )
        found[job] = [place.strip() for place in places]
    task = read.get("task") if "cluster" in read else None
    if isinstance(task, dict) and task.get("type") == "evaluator":
        found.setdefault("evaluator", [f"{LOCALHOST}:auto"])
    return found


def host_name(host: str, taken: Mapping[str, Any]) -> str:
    """Returns a name for a host in a cluster file: its own, or `host1` for an IP address."""
    try:
        check_host(host)
        named = not re.fullmatch(r"[\d.]+", host) and ":" not in host
    except ValueError:
        named = True
    if named and host not in taken:
        return host
    stem = host if named else "host"
    return next(name for n in range(1, 10**6) if (name := f"{stem}{n}") not in taken)


def next_like(names: list[str], pattern: str) -> str:
    """Returns the first free name after `pattern` in its series (`tf1` → `tf2`)."""
    found = list(_NUMBER.finditer(pattern))
    if not found:
        return next(name for n in range(2, 10**6) if (name := f"{pattern}{n}") not in names)
    last = found[-1]
    before, after = pattern[: last.start()], pattern[last.end() :]
    first = int(last[0]) + 1
    return next(
        name for n in range(first, first + 10**6) if (name := f"{before}{n}{after}") not in names
    )


_DEEPEST_INCLUDE = 8
_MOST_ALIASES = 2000


def aliases() -> list[str]:
    """Lists the `Host` names of `~/.ssh/config` and the files it includes, in their order.

    Patterns (`*`, `?`, `!`) and files that cannot be read are skipped.
    """
    start = Path("~/.ssh/config").expanduser()
    found: dict[str, None] = {}
    _read_ssh_config(start, start.parent, found, _DEEPEST_INCLUDE)
    return list(found)


def _read_ssh_config(path: Path, home: Path, found: dict[str, None], depth: int) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = _ssh_words(line)
        if len(words) < 2:
            continue
        keyword = words[0].lower()
        if keyword == "host":
            for name in words[1:]:
                if not set("*?!") & set(name) and len(found) < _MOST_ALIASES:
                    found[name] = None
        elif keyword == "include" and depth:
            for pattern in words[1:]:
                for included in _included(pattern, home):
                    _read_ssh_config(included, home, found, depth - 1)


def _ssh_words(line: str) -> list[str]:
    """Splits a line into keyword and arguments; `Keyword=value` is valid as well."""
    keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    try:
        return [keyword, *shlex.split(rest, comments=True)] if keyword[:1] != "#" else []
    except ValueError:
        return [keyword, *rest.split()]


def _included(pattern: str, home: Path) -> list[Path]:
    path = Path(os.path.expanduser(pattern))
    if not path.is_absolute():
        path = home / path
    try:
        return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError):
        return []
