"""What is left of Python 2 in a program for TensorFlow 1 is named, with what to write instead."""

from __future__ import annotations

import pytest

from trainer.tf1 import python2

PYTHON_2 = {
    "print 'a'": "2to3",
    "exec 'a'": "2to3",
    "try:\n    a\nexcept E, e:\n    b": "2to3",
    "raise E, 'text'": "2to3",
    "1 <> 2": "2to3",
    "`1`": "2to3",
    "0777": "2to3",
    "ur'x'": "2to3",
    "10L": "2to3",
    "def f((a, b)): pass": "2to3",
    "lambda (a, b): a": "2to3",
    "if 1:\n\ta = 1\n        b = 2": "`expand train.py > NEW`",
    "print('`', `1`)": "2to3",
    "xrange(3)": "`range`",
    "unicode('a')": "`str`",
    "raw_input()": "`input`",
    "import cPickle": "`pickle`",
    "import urllib2": "`urllib.request`",
    "{}.iteritems()": "`items`",
    "{}.has_key(1)": "`KEY in DICT`",
    "import itertools; itertools.izip": "`zip`",
    "import urllib; urllib.urlretrieve": "`urllib.request.urlretrieve`",
    "range(3 / 2)": "`//`",
    "two = [1, 2]; two[2 / 2]": "`//`",
    "[0] * (4 / 2)": "`//`",
    "map(abs, [1])[0]": "`list(…)`",
    "{}.keys()[0]": "`list(…)`",
    "len(zip([1], [2]))": "`list(…)`",
    "{}.keys().sort()": "`list(…)`",
    "range(3)[0] = 1": "`list(…)`",
    "range(3).append(1)": "`list(…)`",
    "'a'.decode('utf-8')": "leave `.decode(…)` out",
}
PYTHON_3 = [
    "undefined",
    "import absent_module",
    "{}.absent",
    "int('a')",
    "int([])",
    "[1][0][0]",
    "class A:\n    pass\nA().iteritems",
    "a = = 1",
    "def f(:",
    "if 1:\nprint(1)",
    "raise ValueError('a, b')",
    "'<>' + 1",
    "a = 1 2  # see `a`",
    "a = '<>' b",
    "a = 'raise E, e' b",
    'a = """`""" b',
    "a = (1, '`'",
    "a = 'ur\\'x' b",
]


def hint(program: str) -> str:
    try:
        exec(compile(program, "train.py", "exec"), {})
    except Exception as error:
        return python2.hint(error)
    raise AssertionError(program)


@pytest.mark.parametrize(("program", "remedy"), PYTHON_2.items())
def test_python_2_has_a_hint(program: str, remedy: str) -> None:
    """Syntax, names, modules, methods, whole division, lists that are views now."""
    assert remedy in hint(program)


@pytest.mark.parametrize("program", PYTHON_3)
def test_other_errors_have_none(program: str) -> None:
    """A hint that misleads is worse than none."""
    assert hint(program) == ""
