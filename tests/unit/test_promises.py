"""Each promise of README and SECURITY is shown by tests of `make test`."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.paths import REPOSITORY
from tests.support.promises import README, SECURITY, SHOWN_BY

PAGES = {"README.md": README, "SECURITY.md": SECURITY}


def promised(page: str) -> list[str]:
    """Paragraphs and items below the heading that promises."""
    found = re.search(
        r"^## What (?:it promises|is promised)\n(.*?)^## ",
        (REPOSITORY / page).read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert found is not None, page
    parts = re.split(r"\n\n|\n(?=- )", found[1].strip())
    return [" ".join(part.split()) for part in parts if not part.startswith("How each promise")]


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_has_its_tests(page: str) -> None:
    """Given a paragraph that promises, then the table quotes it; what it quotes is on the page."""
    text = " ".join((REPOSITORY / page).read_text().split())
    assert not [quote for quote in PAGES[page] if quote not in text]
    without = [part for part in promised(page) if not any(quote in part for quote in PAGES[page])]
    assert not without


@pytest.mark.parametrize("test", sorted(SHOWN_BY))
def test_what_shows_a_promise_is_run_by_make_test(test: str) -> None:
    """Given a test of the tables, then it starts processes, is there under its name, and neither it
    nor its module is marked `prove` or `soak`."""
    file, _, name = test.partition("::")
    assert file.startswith(("tests/hosts/", "tests/processes/", "tests/tensorflow/"))
    module = ast.parse((REPOSITORY / file).read_text())
    functions = [
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    assert functions, "no such test"
    marks = [ast.unparse(each) for each in functions[0].decorator_list] + [
        ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    left_out = re.compile(r"^\[?(?:.*, )?pytest\.mark\.(?:prove|soak)\b")
    assert not [mark for mark in marks if left_out.match(mark)]
