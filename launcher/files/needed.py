"""Files of the workdir that a command names: those without which it cannot run, and others."""

from __future__ import annotations

import ast
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from ..agent.executables import SHELLS
from ..frozen import frozen
from ..ids import TaskId
from ..plan.run_plan import HostPlan, Plan, TaskPlan, cannot_run
from ..plan.shell import split_python
from ..quantities import counted
from .listing import Copied, LeftOut, Listed

_INTERPRETERS = (*SHELLS, "perl", "ruby", "node", "Rscript", "julia", "lua", "php")
_LARGEST_SCRIPT = 1 << 20
_LONGEST_PATH = 4096
_MOST_PATHS = 8
"""Paths in commands that are looked for on a host."""
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/", "/usr/", "/bin/", "/etc/")
_MOST_SCRIPTS = 100
"""Python files that are read for what they import."""
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
        if why := left_out_module(task, copied):
            found.setdefault(why, []).append(task.id)
        for word in filter(None, (program, script_of(task.argv))):
            place = copied_path(task, word)
            if place is None:
                continue
            if place.path not in known:
                known[place.path] = copied.problem(place.path)
            if why := known[place.path]:
                found.setdefault(why, []).append(task.id)
    return next((cannot_run(tasks, host.name, why) for why, tasks in found.items()), "")


def module_of(task: TaskPlan) -> tuple[str, ...]:
    """The parts of the name of a module that `python -m` runs from the copy of the workdir, if it
    is there; empty where it cannot be."""
    words = split_python(task.argv) if is_python(task.argv) else None
    if words is None or words[1][0] != "-m" or copied_path(task, ".") is None:
        return ()
    return tuple(words[1][1].split("."))


def left_out_module(task: TaskPlan, copied: Copied) -> str:
    """Reason for which the module of a command is not in its package, which is copied; empty where
    it is, or the package may come from elsewhere."""
    parts = module_of(task)
    if len(parts) < 2 or not copied.find(f"{parts[0]}/__init__.py"):
        return ""
    return find_module(".", parts, copied)[1]


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
        found = place and copied.find(place.path)
        if found:
            programs, root = [found], posixpath.dirname(found.path) or "."
        elif parts := module_of(task):
            programs, root = find_module(".", (*parts, "__main__"), copied)[0], "."
        else:
            continue
        key = "/".join(each.path for each in programs)
        if f"{key}/" not in known:
            known.add(f"{key}/")
            for why in _imports(programs, root, copied):
                yield task.id, why


def above_workdir(plan: Plan, host: HostPlan) -> Iterator[tuple[TaskId, str]]:
    """Yields each path above the copied workdir that words of a command, a variable or `setup`
    name, such as `../results`, with the first task that does."""
    known: set[str] = set()
    for task in plan.on_host(host.name) if plan.copies(host) else ():
        if task.directory or MOVES.search(task.setup):
            continue
        for word in (*task.argv, task.setup, *task.env.values()):
            for part in _parts(word):
                path = posixpath.normpath(part)
                if (path == ".." or path.startswith("../")) and path not in known:
                    known.add(path)
                    yield task.id, path


def paths_here(tasks: Sequence[TaskPlan]) -> Iterator[tuple[TaskId, str]]:
    """Yields the first paths from the root or the home that are words of commands and that this
    machine has, each with the first task that names it. A program, a script and the log directory
    have checks of their own, and what is in the system's directories is each host's own."""
    known: set[str] = set()
    for task in tasks:
        own = {task.argv[0], script_of(task.argv)} if task.argv else set()
        for word in task.argv[1:]:
            for part in (word, word.partition("=")[2]):
                plain = part.startswith(("/", "~/")) and not any(sign in part for sign in "*?\n\0")
                if not plain or part in own or part in known or len(part) > _LONGEST_PATH:
                    continue
                known.add(part)
                inside = part.startswith((f"{task.cwd}/", task.logdir or "/dev/", *_SYSTEM))
                if not inside and os.path.exists(os.path.expanduser(part)):
                    yield task.id, part
                if len(known) >= _MOST_PATHS:
                    return


def find_module(folder: str, parts: Sequence[str], copied: Copied) -> tuple[list[Listed], str, str]:
    """The files that are read when a module is imported from a directory; why one of them is not
    copied, though it is on this machine, and the name of that one."""
    files: list[Listed] = []
    for count, part in enumerate(parts, 1):
        folder = posixpath.normpath(f"{folder}/{part}")
        if folder.startswith("../"):
            break
        names = (f"{folder}/__init__.py", f"{folder}.py")
        files += filter(None, map(copied.find, names))
        if copied.find(names[1]):
            break
        if not copied.find(folder):
            here = [names[1], *([folder] if _has_modules(copied.local(folder)) else [])]
            why = next(filter(None, map(copied.problem, here)), "")
            return files, why, ".".join(parts[:count])
    return files, "", ""


def _has_modules(folder: str) -> bool:
    """A directory without any may have a package's name, as `wandb/` has, and is none."""
    try:
        return any(name.endswith(".py") for name in os.listdir(folder)) if folder else False
    except OSError:
        return False


def _imports(programs: Sequence[Listed], root: str, copied: Copied) -> Iterator[str]:
    """Yields a sentence for each module of the workdir that programs, or modules which they import,
    import from the directory `root` and that is not copied."""
    todo, seen, told = list(programs), {each.path for each in programs}, set()
    while todo:
        file = todo.pop(0)
        for folder, parts in _imported(file, root):
            found, why, name = find_module(folder, parts, copied)
            if why and why not in told:
                told.add(why)
                yield f"{file.path} imports {name}, but {why}"
            new = [each for each in found if each.path not in seen]
            if len(seen) < _MOST_SCRIPTS:
                seen.update(each.path for each in new)
                todo += new


def _imported(file: Listed, root: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the directory from which each module is imported, and the parts of its name."""
    try:
        if file.kind != "f" or file.size > _LARGEST_SCRIPT:
            return
        with open(file.source, "rb") as opened:
            tree = ast.parse(opened.read(_LARGEST_SCRIPT))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return  # the task will say it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield root, tuple(each.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            up = [".."] * (node.level - 1)
            folder = posixpath.join(posixpath.dirname(file.path), *up) if node.level else root
            module = node.module.split(".") if node.module else []
            for each in node.names:
                yield folder or ".", (*module, each.name)


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
