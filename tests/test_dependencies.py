"""What is imported is declared, bounded, and pinned with hashes in the lock file."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import REPOSITORY

SHIPPED = ("launcher", "tui", "trainer")
OURS = {*SHIPPED, "tests", "bench", "docs"}
APART = {
    "sklearn": "makes the trainer's digits, once and by hand",
    "pydantic_core": "comes with pydantic, which pins it",
}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def requirements(*groups: str) -> dict[str, Requirement]:
    """The declared dependencies, and those of these extras, by name."""
    texts = list(PROJECT["dependencies"])
    for group in groups:
        texts += PROJECT["optional-dependencies"][group]
    return {canonicalize_name(each.name): each for each in map(Requirement, texts)}


def imported(*folders: str) -> dict[str, str]:
    """Each foreign top-level module that is imported, with one file that does so."""
    found: dict[str, str] = {}
    for file in (path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            tops = {name.partition(".")[0] for name in names}
            # Programs of the documentation import what lies beside them.
            found |= {top: str(file) for top in tops if not (file.parent / f"{top}.py").exists()}
    return {n: f for n, f in found.items() if n not in OURS | sys.stdlib_module_names | set(APART)}


def locked() -> dict[str, tuple[Version, int]]:
    """The pinned version of each package, and how many hashes it has."""
    text = (REPOSITORY / "requirements.lock").read_text()
    entries = re.findall(
        r"^([\w.-]+)==([^\s\\]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)$", text, re.M
    )
    return {canonicalize_name(n): (Version(v), h.count("sha256")) for n, v, h in entries}


@pytest.mark.parametrize(
    ("folders", "groups"), [(SHIPPED, ()), (("tests", "bench", "docs"), ("dev",))]
)
def test_what_is_imported_is_declared(folders: tuple[str, ...], groups: tuple[str, ...]) -> None:
    """Not only brought along by something else."""
    declared, distributions = requirements(*groups), packages_distributions()
    modules = imported(*folders)
    assert {"textual", "pytest"} & modules.keys()
    for module, file in modules.items():
        names = {canonicalize_name(name) for name in distributions.get(module, [module])}
        assert names & declared.keys(), f"{file} imports {module}, which is not declared"


def test_dependencies_have_bounds_that_hold_the_pinned_version() -> None:
    """An upper bound for all that users install; what is locked lies within."""
    pinned = locked()
    for name, each in requirements("dev").items():
        assert pinned[name][0] in each.specifier, each
    for each in requirements().values():
        assert any(one.operator == "<" for one in each.specifier), each


def test_the_lock_file_holds_names_versions_and_hashes() -> None:
    """Of every package of `requirements.in` and whatever they need, and nothing else."""
    text = (REPOSITORY / "requirements.lock").read_text()
    pinned = locked()
    assert all(hashes for _, hashes in pinned.values())
    lines = [line for line in text.splitlines() if not line.startswith(("#", "    --hash=sha256:"))]
    assert len([line for line in lines if line]) == len(pinned)
    assert "://" not in text
    for line in (REPOSITORY / "requirements.in").read_text().splitlines():
        if wanted := line.partition("#")[0].strip():
            each = Requirement(wanted)
            assert pinned[canonicalize_name(each.name)][0] in each.specifier, each
