"""Places of the program where a fault can be planted, and a draw among them by lot."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.faults.faults_record import first_line, is_block

TOPS = ("launcher", "tui", "trainer")
_OPERATORS = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}
_WORD = re.compile(r"""[rb]?(["'])[\w.:/-]{1,30}\1""")
"""A text of one word, which the program compares or sends; sentences are for people."""
_TYPING = ("TYPE_CHECKING", "TypeVar", "cast", "NewType", "ParamSpec")


@dataclass(frozen=True)
class Fault:
    """A fault: the bytes from `start` to `end` of a file are replaced.

    Attributes:
        function: where it is, `Class.method`; empty at the level of the module.
        block: the first line of the statements around it that run together; 0 where they run when
            the module is imported.
        place: how many like it stand before it in that function.
    """

    path: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    start: int
    end: int
    block: int
    place: int = 0

    @property
    def name(self) -> str:
        """What stays the same while the lines around it change."""
        place = f" ({self.place + 1})" if self.place else ""
        where = f"{self.path} {self.function}".strip()
        return f"{where}: {_short(self.before)} → {_short(self.after)}{place}"

    def plant(self, source: bytes) -> bytes:
        """Return the file with the fault."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def to_json(self) -> dict[str, Any]:
        """Return its fields, and its name."""
        return {"name": self.name, **asdict(self)}


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


class _Finder(ast.NodeVisitor):
    """Finds the places of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._functions: list[str] = []
        self._block = 0
        self._places: dict[tuple[str, ...], int] = {}
        self.found: list[Fault] = []

    # Ways through the tree.

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what runs, block by block."""
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            if is_block(node, field, value):
                outer, self._block = self._block, first_line(value)
                self._visit_all(value)
                self._block = outer
            else:
                self._visit_all(value if isinstance(value, list) else [value])

    def _visit_all(self, nodes: Sequence[object]) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self.visit(node)

    def _visit_named(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_named

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave formatted texts alone: before Python 3.12 their parts have no places."""

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave a call out."""
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(called, ast.Constant):  # a docstring
            return
        if isinstance(called, ast.Call):
            self._add("call left out", node, "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Go on, but for what only mypy reads."""
        if not (isinstance(node.func, ast.Name) and node.func.id in _TYPING):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Negate a condition, but for what only mypy reads."""
        if isinstance(node.test, ast.Name) and node.test.id in _TYPING:
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Negate a condition."""
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate a condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Negate conditions."""
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        self._add("condition negated", test, f"not ({self._text(test)})")

    def visit_Compare(self, node: ast.Compare) -> None:
        """Swap the first operator."""
        self._swap("comparison swapped", node.ops[0], node.left, node.comparators[0])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap the first operator."""
        self._swap("and/or swapped", node.op, *node.values[:2])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Swap the operator between numbers."""
        texts = (ast.JoinedStr, ast.Constant)
        sides = (node.left, node.right)
        if not any(isinstance(s, texts) and not _is_number(s) for s in sides):
            self._swap("operator swapped", node.op, *sides)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leave `not` out."""
        if isinstance(node.op, ast.Not):
            start, _ = self._span(node)
            inner, _ = self._span(node.operand)
            text = self._source[start:inner].decode()
            self._note(
                "not left out", node.lineno, start, inner, re.sub(r"not\s*", "", text, count=1)
            )
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Return nothing."""
        if node.value is None:
            return
        if not isinstance(node.value, ast.Constant):
            self._add("returns None", node.value, "None")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change a number, a truth value or a word."""
        value, text = node.value, self._text(node)
        if isinstance(value, bool):
            self._add("constant changed", node, str(not value))
        elif isinstance(value, int):
            self._add("off by one", node, str(value + 1))
        elif isinstance(value, float):
            self._add("constant changed", node, repr(value * 2 or 1.0))
        elif _WORD.fullmatch(text):
            self._add("constant changed", node, f"{text[:-1]}x{text[-1]}")

    # What is found.

    def _swap(self, kind: str, operator: ast.AST, left: ast.expr, right: ast.expr) -> None:
        if type(operator) not in _OPERATORS:
            return
        before, after = _OPERATORS[type(operator)]
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = re.escape(before).replace(r"\ ", r"\s+").encode()
        found = re.search(rb"(?<![\w=<>!])" + pattern + rb"(?![\w=])", self._source[start:end])
        if found:
            self._note(kind, left.end_lineno, start + found.start(), start + found.end(), after)

    def _add(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        self._note(kind, node.lineno, *self._span(node), after)

    def _note(self, kind: str, line: int | None, start: int, end: int, after: str) -> None:
        function, before = ".".join(self._functions), self._source[start:end].decode()
        place = self._places.setdefault((function, kind, before), 0)
        self._places[function, kind, before] += 1
        where = (self._path, line or 0, function)
        self.found.append(Fault(*where, kind, before, after, start, end, self._block, place))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def find(path: str, source: bytes) -> list[Fault]:
    """Return all faults that can be planted in a file."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return [fault for fault in finder.found if _is_program(fault.plant(source))]


def _is_program(source: bytes) -> bool:
    try:
        compile(source, "planted", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def sources(root: Path) -> dict[str, bytes]:
    """Return the modules of the program in a copy, by their paths there."""
    paths = [path for top in TOPS for path in sorted((root / top).rglob("*.py"))]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def draw(root: Path, count: int, seed: int) -> Iterator[Fault]:
    """Draw different faults by lot: a line of the program, and a place in that module."""
    lots = random.Random(seed)
    texts = sources(root)
    lines = [len(text.splitlines()) for text in texts.values()]
    drawn: set[Fault] = set()
    while len(drawn) < count:
        (path,) = lots.choices([*texts], lines)
        found = find(path, texts[path])
        if found and (fault := lots.choice(found)) not in drawn:
            drawn.add(fault)
            yield fault


def found_again(fault: Fault, root: Path) -> Fault | None:
    """Return the same fault in another version; None where its place is gone."""
    file = root / fault.path
    same = (fault.function, fault.kind, fault.before, fault.place)
    for other in find(fault.path, file.read_bytes()) if file.exists() else ():
        if (other.function, other.kind, other.before, other.place) == same:
            return other
    return None
