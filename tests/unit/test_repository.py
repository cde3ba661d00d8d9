"""What tests may import, names in the prose of the code, and tests of each promise."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.promises import README, SECURITY, SHOWN_BY

# What tests may import, and names in the prose of the code.


def test_no_test_imports_the_module_of_another_one() -> None:
    """What tests share is in `tests/support` and `tests/testbed`."""
    pattern = re.compile(r"^\s*(?:from|import) tests\.(?!support\b|testbed\b)\S+", re.MULTILINE)
    found = [
        f"{path.relative_to(REPOSITORY)}: {line}"
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        for line in pattern.findall(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_indexes_of_packages_name_their_modules() -> None:
    """A docstring that lists modules, a name and what it is, lists those that there are."""
    found = []
    for path in sorted((REPOSITORY / "launcher").rglob("__init__.py")):
        text = path.read_text().partition('"""')[2].partition('"""')[0]
        listed = re.findall(r"^    ([a-z_]+) +\S", text, re.MULTILINE)
        there = {each.stem for each in path.parent.iterdir() if not each.stem.startswith("_")}
        found += [f"{path.parent.name}: {name}" for name in listed if name not in there]
    assert not found, "\n".join(found)


_NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`")
_FILES = ("log", "lock", "toml", "json", "jsonl", "py")
"""Ends of names of files."""
_OTHERS = ("asyncssh", "pydantic", "rich", "textual", "tomlkit")
_CLASS = re.compile(r"^class (\w+)(?:\[.*?\])?(?:\(([^)]*)\))?.*:\n((?:(?: .*)?\n)*)", re.MULTILINE)


class Names:
    """Names that modules of `launcher/` and `tui/` have, by their texts."""

    def __init__(self, texts: dict[Path, str]) -> None:
        self._texts = texts
        self._modules: dict[str, list[Path]] = {}
        self._classes: dict[str, list[tuple[str, str]]] = {}
        for path, text in texts.items():
            place = path.parent if path.stem == "__init__" else path
            self._modules.setdefault(place.stem, []).append(place)
            for name, bases, body in _CLASS.findall(text):
                self._classes.setdefault(name, []).append((bases, body))

    def lacks(self, name: str) -> bool:
        """Whether a name begins with a module, package or class of ours, and goes on with what is
        not there; or a class of ours stands behind a module that is nobody's."""
        first, *others = name.split(".")
        if others[-1] in _FILES:
            return False
        if first not in {*self._modules, *self._classes}:
            is_foreign = first in _OTHERS or first in sys.stdlib_module_names
            return not is_foreign and any(other in self._classes for other in others)
        is_there = any(self._leads_on(place, others) for place in self._modules.get(first, []))
        return not (is_there or self._has(first, others))

    def _leads_on(self, place: Path, others: list[str]) -> bool:
        """Whether the names are those of modules in a package, of a module, and in a class."""
        if not others:
            return True
        package = place / "__init__.py"
        first, *others = others
        for inner in (place / first, place / f"{first}.py"):
            if inner in self._texts or inner / "__init__.py" in self._texts:
                return self._leads_on(inner, others)
        text = self._texts[package if package in self._texts else place]
        pattern = rf"^(?:class |def |async def |(?:\w+, )*)?{first}\b ?[\[(:=,]"
        if package in self._texts:  # which has names of its modules, too
            pattern = rf"\b{first}\b"
        found = re.search(pattern, text, re.MULTILINE)
        return found is not None and (not others or self._has(first, others))

    def _has(self, name: str, others: list[str]) -> bool:
        """Whether a class, or a class that it is made from, has an attribute; of an attribute of
        that nothing is known."""
        if not others:
            return True
        pattern = rf"^    (?:async )?(?:def )?{others[0]}\b ?[\[(:=]|\bself\.{others[0]}\b"
        return any(
            re.search(pattern, body, re.MULTILINE)
            or any(self._has(base, others) for base in re.findall(r"\w+", bases))
            for bases, body in self._classes.get(name, [])
        )


def _sources() -> dict[Path, str]:
    roots = (REPOSITORY / "launcher", REPOSITORY / "tui")
    return {path: path.read_text() for root in roots for path in sorted(root.rglob("*.py"))}


def test_names_in_prose_of_the_code_exist() -> None:
    """A docstring or comment that says `machine.RunStateMachine.handle` leads there."""
    texts = _sources()
    names = Names(texts)
    found = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path, text in texts.items()
        for name in _NAME.findall(text)
        if names.lacks(name)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("machine.RunStateMachine.handle", False),
        ("launcher.run.machine.RunStateMachine", False),
        ("RunStateMachine.handle", False),
        ("ClusterFileError.problems", False),
        ("launcher.Cluster", False),
        ("launcher.log", False),
        ("os.walk", False),
        ("wire.BY_AGENT", False),
        ("threading.Event", False),
        ("control.RunControl", False),
        ("client.RunControl", True),
        ("run.Run.handle", True),
        ("machine.RunStateMachine.handles", True),
        ("RunStateMachine.handles", True),
        ("cluster.loading", True),
        ("store.streams", True),
        ("launcher.run.machines.RunStateMachine", True),
    ],
)
def test_a_name_that_leads_nowhere_is_found(name: str, lacks: bool) -> None:
    """By its module, its package, or its class alone; names of other programs are not ours."""
    assert Names(_sources()).lacks(name) is lacks


_RIDDLE = re.compile(r'^ *"""(?:All of|It|Of|So many|The same|Those)\b.*', re.MULTILINE)


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    tops = ("launcher", "tui", "trainer", "tests", "bench", "docs")
    found = [
        f"{path.relative_to(REPOSITORY)}: {line.strip()}"
        for top in tops
        for path in sorted((REPOSITORY / top).rglob("*.py"))
        for line in _RIDDLE.findall(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_classes_have_names_of_their_own() -> None:
    """Two classes of launcher and screens with one name are mixed up by readers. A class within
    another one, such as a message of a widget, has the name of that in front."""
    places: dict[str, list[str]] = {}
    for path, text in _sources().items():
        for name in re.findall(r"^class (\w+)", text, re.MULTILINE):
            places.setdefault(name, []).append(str(path.relative_to(REPOSITORY)))
    found = [f"{name}: {', '.join(of)}" for name, of in places.items() if len(of) > 1]
    assert not found, "\n".join(found)


# Each promise of README and SECURITY is shown by tests of `make test`.

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
