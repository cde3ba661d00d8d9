"""The table of codes in `docs/preflight.md` is that of the program."""

from __future__ import annotations

import re

from launcher.preflight.findings import Reach
from tests.support.manual import DOCS
from tests.support.paths import REPOSITORY

_GIVEN = re.compile(
    r'(?:blocking|warning)\(\s*[\w.]+,\s*"([a-z-]+)"|\bcode(?:: str)? ?= ?"([a-z-]+)"'
)
_GENERAL = {"host-failed", "unreachable"}
"""Codes of general errors: where one is raised, it gets a code of its own."""


def _source() -> str:
    return "\n".join(path.read_text() for path in sorted((REPOSITORY / "launcher").rglob("*.py")))


def _documented() -> set[str]:
    text = (DOCS / "preflight.md").read_text()
    section = text.partition("\n## Codes\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {code for cell in cells for code in re.findall(r"`([a-z-]+)`", cell)}


def test_every_code_of_the_program_is_in_the_table() -> None:
    """The table has the codes of findings, and of the errors of a host that become findings."""
    given = {code for pair in _GIVEN.findall(_source()) for code in pair if code} - _GENERAL
    assert len(given) > 40
    assert given - _documented() == set()


def test_every_code_in_the_table_is_one_of_the_program() -> None:
    """Codes of the matrix are made from its outcomes."""
    source = _source()
    reach = {f"reach-{outcome}" for outcome in Reach} - {"reach-ok", "reach-unknown"}
    documented = _documented()
    assert reach <= documented
    assert {code for code in documented - reach if f'"{code}"' not in source} == set()
