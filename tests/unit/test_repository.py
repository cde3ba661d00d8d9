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
