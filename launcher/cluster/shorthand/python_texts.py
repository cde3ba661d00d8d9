"""Recogniser of Python programs among texts, and of the values that are literals in them.

A program's text is parsed and never run. An assignment of a shell has its value in it; a program's
has an expression, which says hosts only where it is a literal.
"""

from __future__ import annotations

import ast
import re
import warnings

_OLDER = re.compile(r"^(?:import|from)[ \t]+\w", re.MULTILINE)
_STATEMENT = re.compile(r"^[ \t]*(?:def|class|print|if|for|with)\b", re.MULTILINE)
_BLANKS = re.compile(r"^\w+[ \t]+=[ \t]", re.MULTILINE)
_PROGRAM = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def is_program(text: str) -> bool:
    """Whether a text is a program, or lines of one. One of Python 2, which cannot be parsed here,
    has imports and statements."""
    tree = _parsed(text)
    if tree is None:
        return bool(_OLDER.search(text) and _STATEMENT.search(text))
    nodes = list(ast.walk(tree))
    if any(isinstance(node, _PROGRAM) for node in nodes):
        return True
    assigned = [node.value for node in nodes if isinstance(node, ast.Assign)]
    return bool(_BLANKS.search(text)) and any(map(_is_computed, assigned))


def is_literal(text: str) -> bool:
    """Whether the text of an expression is a string, or a list of strings."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    )


def expression(text: str, begin: int) -> str:
    """The expression that begins here, as far as its line and its brackets go."""
    depth, end = 0, begin
    while end < len(text) and text[end] != "\n":
        sign = text[end]
        if sign in "([{":
            depth += 1
        elif sign in ")]}" or (sign == "," and not depth):
            if not depth:
                break
            depth -= sign != ","
        end += 1
    return text[begin:end].strip()


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_computed(value: ast.expr) -> bool:
    """Whether a value is a call, an item or an attribute: `a.b`, but not `tf1.example.com`."""
    match value:
        case ast.Call() | ast.Subscript():
            return True
        case ast.Attribute(value=ast.Name()):
            return True
        case _:
            return False
