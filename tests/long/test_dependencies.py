"""Dependencies: what is imported is declared, bounded, and pinned in the lock file."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import distributions, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import REPOSITORY
from tui.extras import MODULES, Extra

OURS = {"launcher", "tui", "trainer", "tests", "bench", "docs"}
APART = {
    "numpy": "counts newlines faster in the launcher, where the trainer is installed, too",
    "sklearn": "makes the trainer's digits, once and by hand",
    "pydantic_core": "comes with pydantic, which pins it",
}
INSTALLED = {canonicalize_name(each.name) for each in distributions()}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def requirements(*groups: str) -> dict[str, Requirement]:
    """The declared dependencies, and those of these extras, by name."""
    texts = list(PROJECT["dependencies"])
    for group in groups:
        texts += PROJECT["optional-dependencies"][group]
    found: dict[str, Requirement] = {
        canonicalize_name(each.name): each for each in map(Requirement, texts)
    }
    own = found.pop("tfmux", None)  # an extra that is made of others
    return found if own is None else found | requirements(*own.extras)


def imported(*folders: str, leave_out: str = "") -> dict[str, str]:
    """Each foreign top-level module that is imported, with one file that does so."""
    found: dict[str, str] = {}
    for file in (path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")):
        if leave_out and file.is_relative_to(REPOSITORY / leave_out):
            continue
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


def locked() -> dict[str, Version]:
    """The pinned version of each package."""
    text = (REPOSITORY / "requirements.lock").read_text()
    entries = re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.M)
    return {canonicalize_name(name): Version(version) for name, version in entries}


@pytest.mark.parametrize(
    ("folders", "groups", "leave_out"),
    [
        (("launcher", "tui"), (), "tui/web"),
        (("tui/web",), ("web",), ""),
        (("trainer",), ("trainer",), ""),
        (("tests", "bench", "docs"), ("dev",), ""),
    ],
)
def test_what_is_imported_is_declared(
    folders: tuple[str, ...], groups: tuple[str, ...], leave_out: str
) -> None:
    """Not only brought along by something else; the parts that an extra is for need it alone."""
    declared, distributions = requirements(*groups), packages_distributions()
    modules = imported(*folders, leave_out=leave_out)
    assert modules
    for module, file in modules.items():
        names = {canonicalize_name(name) for name in distributions.get(module, [module])}
        assert names & declared.keys(), f"{file} imports {module}, which is not declared"


def test_dependencies_have_bounds_that_hold_the_pinned_version() -> None:
    """An upper bound for all that users install; what is locked lies within."""
    pinned = locked()
    for name, each in requirements("dev").items():
        assert pinned[name] in each.specifier, each
    for each in requirements("all").values():
        assert any(one.operator == "<" for one in each.specifier), each


@pytest.mark.parametrize("extra", Extra)
def test_each_extra_is_looked_for_by_its_modules(extra: Extra) -> None:
    """All of them are of packages that it declares."""
    declared = {
        canonicalize_name(Requirement(text).name)
        for text in PROJECT["optional-dependencies"][extra]
    }
    assert {canonicalize_name(module) for module in MODULES[extra]} <= declared


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_the_lock_file_is_complete_on_every_system(version: str, system: str) -> None:
    """What a package needs on another version or system only is in it, too."""
    environ = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "platform_system": system,
        "sys_platform": system.lower(),
        "platform_machine": "arm64" if system == "Darwin" else "x86_64",
    }
    pinned, seen = locked(), set[tuple[str, str]]()
    lines = (REPOSITORY / "requirements.in").read_text().splitlines()
    wanted = [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]
    while wanted:
        each = wanted.pop()
        name = canonicalize_name(each.name)
        assert pinned[name] in each.specifier, each
        for extra in ("", *each.extras):
            if (name, extra) in seen or name not in INSTALLED:
                continue
            seen.add((name, extra))
            for needed in map(Requirement, requires(name) or ()):
                marker = needed.marker
                if marker is None or marker.evaluate({**environ, "extra": extra}):
                    wanted.append(needed)
