"""What tests may import."""

from __future__ import annotations

import re

from tests.support.paths import REPOSITORY


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
