"""Recorder of the statements of the program that each test runs, in all of its processes.

A copy of this file lies in the virtual environment of a copy of the program, where each interpreter
imports it by a `.pth` file. It needs nothing but the standard library, and nothing in the program
knows of it: modules are compiled with a note in each block of statements, which is written once a
test and process. Children of a test know it by the variable that pytest
sets; code that a launcher sends to a host as code has the notes, too.
"""

from __future__ import annotations

import ast
import re
from typing import Any

FOLDER = "@FOLDER@"
"""Where it writes; `bench.faults` puts it here."""
_TOPS = ("launcher", "tui", "trainer")
_HEAD = """
import sys as _faults_
try:
    if not hasattr(_faults_, "_faults_seen_"):
        exec(compile(open(FILE).read(), FILE, "exec"), {"__name__": "faults_runtime"})
    _faults_seen_ = _faults_._faults_seen_(PATH)
except Exception:
    class _faults_seen_(set):
        note = set.add
    _faults_seen_ = _faults_seen_()
"""
_RUNTIME = r"""
import fcntl, hashlib, os, re, sys
environ, add, write, sha1, every = os.environ, set.add, os.write, hashlib.sha1, []
end = re.compile(r"(@[^@\]]*)? \(\w+\)$")
# One descriptor, opened at the start: some tests watch what is opened. Its number is above all that
# are used, so that nothing else gets it where all are closed.
opened = os.open(FOLDER + "/hits", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
file = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 900)
os.close(opened)
class Seen(set):
    def __init__(self, path):
        self.path = path
        every.append(self)
    def note(self, line):
        add(self, line)
        test = environ.get("PYTEST_CURRENT_TEST")
        if test:
            name = sha1(end.sub("", test).encode("utf-8", "surrogateescape")).hexdigest()
            try:
                write(file, ("%s %s:%d\n" % (name, self.path, line)).encode())
            except OSError:
                pass
def forget():
    for one in every:
        set.clear(one)
sys._faults_seen_, sys._faults_forget_ = Seen, forget
os.register_at_fork(after_in_child=forget)
"""


def is_block(node: ast.AST, field: str, value: object) -> bool:
    """Return whether this field of a node has statements that run together, not at the import."""
    if field not in ("body", "orelse", "finalbody") or isinstance(node, ast.Module | ast.ClassDef):
        return False
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def first_line(statements: list[ast.stmt]) -> int:
    """Return the line by which a block is known."""
    behind = _is_text(statements[0]) and len(statements) > 1
    return statements[int(behind)].lineno


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def with_notes(source: bytes | str, path: str) -> ast.Module:
    """Return a module with a note at the beginning of each block."""
    tree = ast.parse(source, path)
    for node in [*ast.walk(tree)]:
        for field, value in ast.iter_fields(node):
            if is_block(node, field, value):
                line = first_line(value)
                note = ast.parse(f"{line} in _faults_seen_ or _faults_seen_.note({line})").body
                at = int(_is_text(value[0]))
                for one in ast.walk(note[0]):
                    if isinstance(one, ast.expr | ast.stmt):
                        one.lineno = one.end_lineno = line
                        one.col_offset = one.end_col_offset = 0
                value[at:at] = note
    head = _HEAD.replace("FILE", repr(f"{FOLDER}/runtime.py")).replace("PATH", repr(path))
    first = 0
    for statement in tree.body:
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (_is_text(statement) or is_future):
            break
        first += 1
    tree.body[first:first] = ast.parse(head).body
    return tree


def install() -> None:
    """Compile the program's modules with notes, from now on."""
    from importlib.machinery import SourceFileLoader

    compiled: Any = SourceFileLoader.source_to_code
    ours = re.compile(rf"(?:^|/)((?:{'|'.join(_TOPS)})/(?:\w+/)*\w+\.py)$")

    def source_to_code(self: Any, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        found = ours.search(str(path))
        if found and isinstance(data, bytes | str) and "site-packages" not in str(path):
            tree = with_notes(data, found[1])
            return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return compiled(self, data, path, _optimize=_optimize)

    vars_of: Any = SourceFileLoader
    vars_of.source_to_code = source_to_code


def prepare(folder: str) -> None:
    """Write what processes without this module read."""
    with open(f"{folder}/runtime.py", "w") as file:
        file.write(f"FOLDER = {folder!r}\n{_RUNTIME}")


if not FOLDER.startswith("@"):
    install()
