"""Files of the workdir that a command names: those without which it cannot run, and others."""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from ..frozen import frozen
from ..ids import TaskId
from ..plan.planner import HostPlan, Plan, TaskPlan, cannot_run
from ..plan.shell import split_python
from ..quantities import counted
from .listing import Copied, LeftOut

SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "csh", "tcsh", "fish")
_INTERPRETERS = (*SHELLS, "perl", "ruby", "node", "Rscript", "julia", "lua", "php")
_LARGEST_SCRIPT = 1 << 20
_SHOWN = 4
"""Links that a note names."""
MOVES = re.compile(r"\b(cd|pushd)\b")
"""Shell text behind which a relative path may mean anything."""


@frozen
class CopiedPath:
    """A path in the copy of the workdir on a host."""

    path: str


def is_python(argv: Sequence[str]) -> bool:
    """Whether a command runs a Python program."""
    return bool(argv) and posixpath.basename(argv[0]).startswith("python")


def script_of(argv: tuple[str, ...]) -> str:
    """The script that a command's interpreter runs; empty: the program is none, or reads its code
    from elsewhere."""
    if is_python(argv):
        words = split_python(argv)
        return "" if words is None or words[1][0].startswith("-") else words[1][0]
    if not argv or posixpath.basename(argv[0]) not in _INTERPRETERS:
        return ""
    script = next((word for word in argv[1:2]), "")
    return "" if script.startswith(("-", "+")) else script  # options may have values: not known


def copied_path(task: TaskPlan, path: str) -> CopiedPath | None:
    """A path of a task that starts in a copy of the workdir; None: it is elsewhere on the host, or
    depends on what `setup` does."""
    if path.startswith(f"{task.cwd}/"):
        return CopiedPath(posixpath.normpath(path[len(task.cwd) + 1 :]))
    if path.startswith(("/", "~")) or MOVES.search(task.setup):
        return None
    inside = posixpath.normpath(path)
    return None if inside == ".." or inside.startswith("../") else CopiedPath(inside)


def left_out_command(plan: Plan, host: HostPlan, copied: Copied) -> str:
    """Writes a sentence about the first program or script of a host's tasks that is on this machine
    and is not copied; empty where there is none, or `prepare` may make it."""
    found: dict[str, list[TaskId]] = {}
    known: dict[str, str] = {}
    for task in plan.on_host(host.name) if plan.copies(host) and not host.prepare else ():
        if task.directory or not task.argv:
            continue
        program = task.argv[0] if "/" in task.argv[0] else ""
        for word in filter(None, (program, script_of(task.argv))):
            place = copied_path(task, word)
            if place is None:
                continue
            if place.path not in known:
                known[place.path] = copied.problem(place.path)
            if why := known[place.path]:
                found.setdefault(why, []).append(task.id)
    return next((cannot_run(tasks, host.name, why) for why, tasks in found.items()), "")


def other_files(plan: Plan, host: HostPlan, copied: Copied) -> Iterator[tuple[TaskId, str]]:
    """Yields a sentence for each file that is not copied and that words of commands or `setup`
    name, or a script imports, with the first task that does; programs and scripts are not among
    them."""
    known: set[str] = set()
    for task in plan.on_host(host.name) if plan.copies(host) else ():
        if task.directory or not task.argv:
            continue
        certain = {task.argv[0], script_of(task.argv)}
        words = [word for word in task.argv[1:] if word not in certain]
        for word in (*words, task.setup):
            for part in _parts(word):
                place = copied_path(task, part)
                if place is None or place.path in known or place.path == ".":
                    continue
                known.add(place.path)
                if copied.is_file_here(place.path) and (why := copied.problem(place.path)):
                    yield (
                        task.id,
                        f"the command of {task.id} names what {host.name} does not get: {why}",
                    )
        script = script_of(task.argv) if is_python(task.argv) else ""
        place = copied_path(task, script) if script else None
        if place is not None and f"{place.path}/" not in known:
            known.add(f"{place.path}/")
            for why in _imports(place.path, copied):
                yield task.id, why


def _imports(script: str, copied: Copied) -> Iterator[str]:
    """Yields a sentence for each module beside a script that it imports and that is not copied."""
    found = copied.find(script)
    try:
        if found is None or found.size > _LARGEST_SCRIPT:
            return
        with open(found.source, "rb") as file:
            tree = ast.parse(file.read(_LARGEST_SCRIPT))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return  # the task will say it
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.partition(".")[0]] = None
    folder = posixpath.dirname(found.path)
    for name in names:
        files = [posixpath.join(folder, file) for file in (name, f"{name}.py")]
        if not any(map(copied.find, files)):
            for why in filter(None, map(copied.problem, files)):
                yield f"{script} imports {name}, but {why}"


def left_out_note(links: Sequence[LeftOut]) -> str:
    """Writes a sentence about links that are not copied."""
    named = "; ".join(f"{link.path} is {link.why}" for link in links[:_SHOWN])
    more = f"; and {len(links) - _SHOWN} more" if len(links) > _SHOWN else ""
    return f"{counted(len(links), 'link')} of the workdir not copied to hosts: {named}{more}"


def _parts(word: str) -> Iterator[str]:
    """The words of a shell text, and what is behind the `=` of each."""
    if len(word) > 4096:
        return
    parts = [word]
    if any(sign in word for sign in " \n;&|"):
        try:
            lexer = shlex.shlex(word, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            parts += list(lexer)
        except ValueError:  # a quote that is not closed
            return
    for part in parts:
        if part and "\0" not in part:
            yield part
            if "=" in part and not part.endswith("="):
                yield part.partition("=")[2]
