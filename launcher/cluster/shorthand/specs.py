"""Finder of cluster specs in texts: JSON and Python dictionaries wherever they stand in a script or
a program, `ClusterDef` as TensorFlow prints it, and `--cluster_spec=worker|tf1:2222;…,ps|…`.

A program's text is parsed and never run: what it computes is not known here, and said.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ...printable import printable
from ..addresses import HERE, AddressError
from ..values import MOST_TASKS
from .entries import expanded, parse_entry, quoted
from .understood import ListedTask, ShorthandError, Understood

Tasks = dict[str, tuple[ListedTask, ...]]
_DEEPEST = 40
_LONGEST = 1 << 18
_MOST_FAILURES = 20
_MOST_VALUES = 1000
_MEANT = re.compile(r"TF_CONFIG|ClusterSpec|[\"']cluster\\?[\"']\s*:")
_ASSIGNED = re.compile(r"^[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*(?=[\[({\"'])", re.MULTILINE)
_CLUSTER_DEF = re.compile(
    r"\bjob\s*\{\s*name:\s*\"([^\"]{1,100})\"((?:\s*tasks\s*\{[^{}]*\})+)\s*\}"
)
_CLUSTER_DEF_TASK = re.compile(r"tasks\s*\{\s*key:\s*(\d{1,9})\s*value:\s*\"([^\"]*)\"\s*\}")
_PIPED = re.compile(r"(?:[A-Za-z]\w{0,60}\|[^\s|,\"']+)(?:,[A-Za-z]\w{0,60}\|[^\s|,\"']+)*")
_PLACES = re.compile(r"\{|[\[({]")


class _Computed:
    """A value that only the program knows."""


_COMPUTED = _Computed()


def find(text: str) -> Understood | None:
    """Finds the cluster spec of a text; None where there is none.

    Raises:
        ShorthandError: one is meant, and cannot be understood, or there are several.
    """
    found: list[tuple[str, Tasks]] = []
    problem = ""
    names = _Variables(text)
    meant = bool(_MEANT.search(text))
    for value, called in _dictionaries(text, names):
        try:
            tasks = _cluster(value, names, called=called)
        except ShorthandError as error:
            problem = problem or str(error)
            continue
        if tasks is not None:
            found.append((_form(text), tasks))
    if not found and (tasks := _cluster_def(text)):
        found.append(("a ClusterDef", tasks))
    if not found and (tasks := _piped(text)):
        found.append(("a --cluster_spec", tasks))
    different: list[Tasks] = []
    for _, tasks in found:
        if not any(_same(tasks, other) for other in different):
            different.append(tasks)
    if len(different) > 1:
        raise ShorthandError(f"it has {len(different)} different clusters: leave one of them")
    if found:
        return Understood(*found[0])
    if problem:
        raise ShorthandError(problem)
    if meant and re.search(r"[\"']cluster", text) and not _closed(text):
        raise ShorthandError("not a TF_CONFIG: a brace or bracket is not closed")
    if meant and (variable := re.search(r"\[\s*\"'\"?(\$\w+)|\[\"(\$\{?\w+)", text)):
        name = variable[1] or variable[2]
        raise ShorthandError(f"the TF_CONFIG has {name}, which only a shell knows: paste its value")
    if meant and re.search(r"[\"']task\\?[\"']\s*:", text):
        raise ShorthandError(
            'the TF_CONFIG has no cluster: write such as {"cluster": {"worker": ["tf1:2222"]}}'
        )
    if text.lstrip().startswith("{"):
        raise ShorthandError('not a TF_CONFIG: write such as {"cluster": {"worker": ["tf1:2222"]}}')
    return None


def _form(text: str) -> str:
    if "TF_CONFIG" in text or re.search(r"[\"']cluster\\?[\"']\s*:", text):
        return "a TF_CONFIG"
    return "a cluster spec"


def _same(one: Tasks, other: Tasks) -> bool:
    without = [{j: t for j, t in each.items() if j != "evaluator"} for each in (one, other)]
    return without[0] == without[1]


class _Variables:
    """Values of the names that a text assigns, evaluated when they are asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places = {match[1]: match.end() for match in _ASSIGNED.finditer(text)}

    def get(self, name: str, depth: int) -> Any:
        place = self._places.get(name)
        if place is None or depth > 5:
            return _COMPUTED
        end = _literal_end(self._text, place)
        if not end:
            return _COMPUTED
        split = re.match(r"\s*\.split\(\s*([\"'])(.)\1\s*\)", self._text[end : end + 40])
        value = _evaluate(self._text[place:end], self, depth + 1)
        return value.split(split[2]) if split and isinstance(value, str) else value


def _literal_end(text: str, begin: int) -> int:
    """The end of the string or the bracket that begins here; 0 where it is not closed."""
    if text[begin] in "\"'":
        end = text.find(text[begin], begin + 1, begin + _LONGEST)
        return end + 1
    return _balanced(text, begin)


def _dictionaries(text: str, names: _Variables) -> Iterator[tuple[Any, bool]]:
    """Yields the values of all outermost braces, and whether each is called a ClusterSpec."""
    at = failures = count = 0
    while failures < _MOST_FAILURES and count < _MOST_VALUES and (begin := text.find("{", at)) >= 0:
        end = _balanced(text, begin)
        at, count = end or begin + 1, count + 1
        if not end:
            failures += 1
            continue
        part = text[begin:end]
        if re.match(r"\{\s*\\+\"", part):
            part = re.sub(r"\\+\"", '"', part)
        value = _evaluate(part, names, 0)
        if isinstance(value, dict):
            yield value, bool(re.search(r"ClusterSpec\(\s*$", text[max(0, begin - 40) : begin]))


def _balanced(text: str, begin: int) -> int:
    """The end of the bracket that begins here; 0 where it is not closed, or nested too deeply.
    Brackets in strings are none."""
    depth, quote, at = 0, "", begin
    last = min(len(text), begin + _LONGEST)
    escaped = bool(re.match(r"[\[({]\s*\\", text[begin : begin + 100]))
    while at < last:
        sign = text[at]
        if quote:
            if sign == "\\":
                at += 1
            elif sign == quote or sign == "\n":
                quote = ""
        elif sign in "\"'" and not escaped:
            quote = sign
        elif sign in "[({":
            depth += 1
            if depth > _DEEPEST:
                return 0
        elif sign in "])}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return 0


def _closed(text: str) -> bool:
    begin = text.find("{")
    return begin < 0 or bool(_balanced(text, begin))


def _evaluate(text: str, names: _Variables, depth: int) -> Any:
    """The value of a literal of JSON or Python."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _COMPUTED
    return _value(tree.body, names, depth)


def _value(node: ast.expr, names: _Variables, depth: int) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {
                _value(key, names, depth): _value(value, names, depth)
                for key, value in pairs
                if isinstance(key, ast.Constant)
            }
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [_value(each, names, depth) for each in elements]
        case ast.Name(id=name):
            return names.get(name, depth)
        case ast.Call(
            func=ast.Attribute(value=inner, attr="split"), args=[ast.Constant(value=str(sep))]
        ):
            text = _value(inner, names, depth)
            return text.split(sep) if isinstance(text, str) and sep else _COMPUTED
        case ast.Call(func=ast.Attribute(attr="dumps"), args=[inner, *_]):
            return _value(inner, names, depth)
        case _:
            return _COMPUTED


def _cluster(
    value: Any, names: _Variables, depth: int = 0, *, called: bool = False
) -> Tasks | None:
    """The tasks of a dictionary; None where it is about something else.

    Raises:
        ShorthandError: it is meant as a cluster, and is none.
    """
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if "cluster" in value:
        inner = value["cluster"]
        if isinstance(inner, _Computed):
            raise ShorthandError(
                "the cluster of the TF_CONFIG is computed by the program: paste its printed value"
            )
        if not isinstance(inner, dict) or not inner:
            raise ShorthandError(
                'the TF_CONFIG has no cluster: write such as {"cluster": {"worker": ["tf1:2222"]}}'
            )
        jobs = _jobs(inner)
        task = value.get("task")
        if isinstance(task, dict) and task.get("type") == "evaluator":
            jobs.setdefault("evaluator", (ListedTask(HERE),))
        return jobs
    if _is_spec(value, called):
        return _jobs(value)
    for inner in value.values():
        if isinstance(inner, str) and inner.lstrip().startswith("{"):
            inner = _evaluate(inner, names, 0)
        if (found := _cluster(inner, names, depth + 1)) is not None:
            return found
    return None


def _is_spec(value: Mapping[Any, Any], called: bool) -> bool:
    """Whether all values are lists of addresses, or of hosts where it is `called` a ClusterSpec."""
    lists = [_listed(each) for each in value.values()]
    flat = [each for listed in lists if listed for each in listed]
    address = r"[^\s/{}]+(?::[^\s/]+)?" if called else r"[^\s/{}]+:[^\s/]+"
    return (
        bool(flat)
        and all(listed is not None for listed in lists)
        and all(isinstance(each, str) and re.fullmatch(address, each) for each in flat)
    )


def _listed(value: Any) -> list[Any] | None:
    """The tasks of a job: a list, an index with addresses, or a text with commas."""
    if isinstance(value, dict):  # a sparse cluster: index → address
        if not all(str(key).isdecimal() for key in value):
            return None
        return [value[key] for key in sorted(value, key=lambda key: int(str(key)[:9]))]
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value if isinstance(value, list) else None


def _jobs(value: Mapping[Any, Any]) -> Tasks:
    """The tasks of a cluster.

    Raises:
        ShorthandError: an address is none, or is not known.
    """
    found: Tasks = {}
    for job, places in value.items():
        shown = printable(str(job), 60)
        if isinstance(places, _Computed):
            raise ShorthandError(
                f"the tasks of {shown} are computed by the program: paste the printed TF_CONFIG"
            )
        listed = _listed(places)
        if listed is None:
            raise ShorthandError(f'the tasks of {shown} are not a list: write such as ["tf1:2222"]')
        tasks: list[ListedTask] = []
        for place in listed:
            if isinstance(place, _Computed):
                raise ShorthandError(
                    f"an address of {shown} is computed by the program: paste the printed TF_CONFIG"
                )
            if not isinstance(place, str):
                raise ShorthandError(
                    f'the tasks of {shown} are not a list of texts: write such as ["tf1:2222"]'
                )
            for word in expanded(place.strip()):
                tasks.append(address(word, shown))
                if len(tasks) > MOST_TASKS:
                    raise ShorthandError(f"it expands to more than {MOST_TASKS} entries")
        if tasks:
            found[str(job)] = tuple(tasks)
    if not found:
        raise ShorthandError(
            'the cluster has no tasks: write such as {"cluster": {"worker": ["tf1:2222"]}}'
        )
    return found


def address(word: str, job: str) -> ListedTask:
    """The task at an address.

    Raises:
        ShorthandError: it is none.
    """
    try:
        return parse_entry(word, tasks=True).task
    except AddressError as error:
        raise ShorthandError(f"{quoted(word)} of {job} is not an address: {error}") from None


def _cluster_def(text: str) -> Tasks:
    found: Tasks = {}
    for job, tasks in _CLUSTER_DEF.findall(text):
        listed = sorted(_CLUSTER_DEF_TASK.findall(tasks), key=lambda pair: int(pair[0]))
        found[job] = tuple(address(place, job) for _, place in listed)
    return found


def _piped(text: str) -> Tasks:
    flag = re.search(r"--cluster_spec[=\s]\s*[\"']?", text)
    spec = _PIPED.match(text, flag.end()) if flag else _PIPED.fullmatch(text.strip().strip("\"'"))
    if spec is None:
        return {}
    # `worker|a:1;b:1,ps|c:1`: a comma begins the next job.
    jobs = (part.partition("|") for part in spec[0].split(","))
    return {
        job: tuple(address(place, job) for place in places.split(";")) for job, _, places in jobs
    }
