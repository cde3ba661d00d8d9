"""Modules that the Python program of a task imports when it starts, by its source in the workdir.

Nothing is imported or run: the script and the modules of the workdir that it imports are parsed.
What is left are names that the host's Python must have. An import in a function may never happen
and is not looked at, nor is one below an `if`, but for `if __name__ == "__main__"` of the script.
"""

from __future__ import annotations

import ast
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..frozen import frozen
from ..plan.run_plan import HostPlan, Plan, TaskPlan
from .listing import Copied
from .needed import copied_path, find_module, is_python, module_of, script_of

_LARGEST_SCRIPT = 1 << 20
_MOST_SCRIPTS = 100
"""Python files that are read for what they import."""
_MOST_NAMES = 200
_MOST_SEARCHED = 5000
"""Files of a workdir on this machine among which a module is looked for."""
_MODULES = (".py", ".so", ".pyd", ".pyc")
_CATCHES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@frozen
class ImportedModule:
    """A module that no file of the workdir is."""

    name: str
    file: str
    """The file that imports it, by its path in the workdir."""
    line: int
    certain: bool
    """The program ends where it is not there: nothing catches the error."""


@frozen
class UnreadableScript:
    """A file that this machine's Python cannot parse."""

    file: str
    line: int
    why: str
    certain: bool
    """The program starts with it, or imports it in any case."""


@frozen
class ProgramImports:
    """Modules that a program imports when it starts."""

    modules: tuple[ImportedModule, ...] = ()
    unreadable: tuple[UnreadableScript, ...] = ()
    sources: tuple[str, ...] = ()
    """Paths on this machine of the files that are imported in any case, the script first."""
    changes_path: bool = False
    """One of the files changes `sys.path`: a module may come from anywhere."""


def imports_of(plan: Plan, host: HostPlan, task: TaskPlan, copied: Copied) -> ProgramImports | None:
    """Finds the modules that a task's program imports when it starts; None where the task runs no
    Python program whose source is in the workdir on this machine. Blocking."""
    files = _Sources(plan, host, task, copied)
    if not is_python(task.argv) or not files.known:
        return None
    if script := script_of(task.argv):
        place = copied_path(task, script)
        if place is None or not files.file(place.path):
            return None
        starts, root = [place.path], posixpath.dirname(place.path) or "."
    elif parts := module_of(task):
        root = "."
        starts = list(files.parts(".", (*parts, "__main__")))
        if not starts:
            return None
    else:
        return None
    roots = [root, *files.search_path()]
    return _Search(files, roots).run(starts)


class _Sources:
    """Files of a workdir, by their paths in it: those that are copied to a host, or those of this
    machine."""

    def __init__(self, plan: Plan, host: HostPlan, task: TaskPlan, copied: Copied) -> None:
        self._copied = copied if plan.copies(host) and not task.directory else None
        self._root = Path(task.cwd) if host.local else None
        self._task = task
        self.known = self._copied is not None or self._root is not None

    def file(self, path: str) -> str:
        """The path on this machine of a regular file; empty where there is none."""
        if self._copied is not None:
            found = self._copied.find(path)
            return found.source if found is not None and found.kind == "f" else ""
        whole = self._root / path if self._root is not None else None
        return str(whole) if whole is not None and whole.is_file() else ""

    def folder(self, path: str) -> bool:
        """Whether there is a directory with modules."""
        if self._copied is not None:
            found = self._copied.find(path)
            if found is None or found.kind != "d":
                return False
            return any(each.endswith(_MODULES) for each in self._copied.below(path))
        try:
            names = os.listdir(self._root / path if self._root is not None else path)
        except OSError:
            return False
        return any(name.endswith(_MODULES) for name in names)

    def parts(self, root: str, parts: Sequence[str]) -> Iterator[str]:
        """Yields the files that are read when a module is imported from a directory."""
        if self._copied is not None:
            yield from (each.path for each in find_module(root, parts, self._copied)[0])
            return
        folder = root
        for part in parts:
            folder = posixpath.normpath(f"{folder}/{part}")
            yield from filter(self.file, (f"{folder}/__init__.py", f"{folder}.py"))
            if self.file(f"{folder}.py"):
                return

    def has(self, root: str, name: str) -> bool:
        """Whether a directory has a module of that name."""
        path = posixpath.normpath(f"{root}/{name}")
        return bool(self.file(f"{path}.py")) or self.folder(path)

    def anywhere(self, name: str) -> bool:
        """Whether any directory of the workdir has such a module: a program may add it to its
        path."""
        for path in self._paths():
            file = posixpath.basename(path)
            if "-packages/" in path:  # of a virtual environment
                continue
            if file.endswith(_MODULES) and file.partition(".")[0] == name:
                return True
            if file == "__init__.py" and posixpath.basename(posixpath.dirname(path)) == name:
                return True
        return False

    def _paths(self) -> Iterator[str]:
        if self._copied is not None:
            yield from self._copied.below(".")
            return
        assert self._root is not None
        count = 0
        for folder, below, files in os.walk(self._root):
            below[:] = [name for name in below if not name.startswith(".")]
            for name in files:
                yield f"{folder}/{name}"
            count += len(files) + 1
            if count > _MOST_SEARCHED:
                return

    def search_path(self) -> Iterator[str]:
        """Yields the directories of the workdir that are in the task's `PYTHONPATH`."""
        for each in self._task.env.get("PYTHONPATH", "").split(":"):
            place = copied_path(self._task, each) if each else None
            if place is not None:
                yield place.path


class _Search:
    def __init__(self, files: _Sources, roots: Sequence[str]) -> None:
        self._files = files
        self._roots = roots
        self._modules: dict[str, ImportedModule] = {}
        self._unreadable: list[UnreadableScript] = []
        self._sources: list[str] = []
        self._changes_path = False

    def run(self, starts: Sequence[str]) -> ProgramImports:
        todo = [(path, True) for path in starts]
        seen: dict[str, bool] = {}
        main = starts[-1]
        while todo and len(seen) < _MOST_SCRIPTS:
            path, certain = todo.pop(0)
            if seen.get(path, False) or (path in seen and not certain):
                continue
            seen[path] = certain
            tree = self._parse(path, certain)
            if tree is None:
                continue
            for found in _imports(tree, main=path == main):
                todo += self._follow(path, found, certain and found.certain)
        return ProgramImports(
            tuple(self._modules.values()),
            tuple(self._unreadable),
            tuple(self._sources),
            self._changes_path,
        )

    def _parse(self, path: str, certain: bool) -> ast.Module | None:
        source = self._files.file(path)
        try:
            with open(source, "rb") as file:
                data = file.read(_LARGEST_SCRIPT + 1)
            tree = ast.parse(data) if len(data) <= _LARGEST_SCRIPT else None
        except SyntaxError as error:
            why = error.msg or "it is not Python"
            self._unreadable.append(UnreadableScript(path, error.lineno or 0, why, certain))
            return None
        except (OSError, ValueError, RecursionError, MemoryError):
            return None  # the task will say it
        if tree is None:
            return None
        if certain and source not in self._sources:
            self._sources.append(source)
        self._changes_path |= any(map(_changes_path, ast.walk(tree)))
        return tree

    def _follow(self, path: str, found: _Import, certain: bool) -> Iterator[tuple[str, bool]]:
        """Yields the files of the workdir that an import reads; a name that none is, is kept."""
        if found.level:
            up = [".."] * (found.level - 1)
            folder = posixpath.join(posixpath.dirname(path), *up) or "."
            for name in found.names:
                for each in self._files.parts(folder, (*found.parts, name)):
                    yield each, certain
            return
        name = found.parts[0]
        for root in self._roots:
            if self._files.has(root, name):
                for last in found.names or ("",):
                    parts = (*found.parts, last) if last else found.parts
                    for each in self._files.parts(root, parts):
                        yield each, certain
                return
        before = self._modules.get(name)
        if (before is None or (certain and not before.certain)) and (
            before is not None or len(self._modules) < _MOST_NAMES
        ):
            if before is None and self._files.anywhere(name):
                return
            self._modules[name] = ImportedModule(name, path, found.line, certain)


@frozen
class _Import:
    parts: tuple[str, ...]
    names: tuple[str, ...]
    """Behind `from … import`: each may be a module, too."""
    level: int
    line: int
    certain: bool


def _imports(tree: ast.Module, *, main: bool) -> Iterator[_Import]:
    """Yields the imports that happen when a module is run."""
    yield from _of(tree.body, True, main)


def _of(body: Sequence[ast.stmt], certain: bool, main: bool) -> Iterator[_Import]:
    for node in body:
        match node:
            case ast.Import():
                for each in node.names:
                    yield _Import(tuple(each.name.split(".")), (), 0, node.lineno, certain)
            case ast.ImportFrom():
                parts = tuple(node.module.split(".")) if node.module else ()
                names = tuple(each.name for each in node.names if each.name != "*")
                yield _Import(parts, names, node.level, node.lineno, certain)
            case ast.Try() | ast.TryStar():
                caught = any(map(_catches, node.handlers))
                yield from _of(node.body, certain and not caught, main)
                yield from _of(node.finalbody, certain, main)
                yield from _of(node.orelse, certain and not caught, main)
            case ast.With():
                yield from _of(node.body, certain and not any(map(_suppresses, node.items)), main)
            case ast.ClassDef():
                yield from _of(node.body, certain, main)
            case ast.If() if main and _is_main(node.test):
                yield from _of(node.body, certain, main)


def _catches(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(_last_name(each) in _CATCHES for each in kinds)


def _suppresses(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and _last_name(call.func) == "suppress"


def _is_main(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    names = {side.id for side in sides if isinstance(side, ast.Name)}
    values = {side.value for side in sides if isinstance(side, ast.Constant)}
    return names == {"__name__"} and values == {"__main__"} and isinstance(test.ops[0], ast.Eq)


def _changes_path(node: ast.AST) -> bool:
    """`sys.path` or `site.addsitedir` stands there."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return (node.value.id, node.attr) in (("sys", "path"), ("site", "addsitedir"))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
