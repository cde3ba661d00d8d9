"""Dependencies: what is imported is declared, bounded, and pinned with hashes in the lock file."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.metadata import distributions, packages_distributions, requires
from inspect import getsource
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType

import pytest
import textual
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import REPOSITORY
from tui.extras import MODULES, Extra

OURS = {"launcher", "tui", "trainer", "tests", "bench", "docs"}
APART = {
    "numpy": "counts newlines faster in the launcher, where the trainer is installed, too",
    "sklearn": "makes the trainer's digits, once and by hand",
    "pydantic_core": "comes with pydantic, which pins it",
    "_sha2": "Python's own, from 3.12 on",
    "_sha256": "the same, up to 3.11",
    "ray": "an example of the manual; tests have a stand-in",
    "dask": "the same",
    "torch": "programs that go wrong; too large for the lock, and tried where it is installed",
}
INSTALLED = {canonicalize_name(each.name) for each in distributions()}
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
GROUPS = PYPROJECT["dependency-groups"]


def requirements(*names: str) -> dict[str, Requirement]:
    """The declared dependencies, and those of these extras and groups, by name."""
    texts = list(PROJECT["dependencies"])
    for name in names:
        texts += (PROJECT["optional-dependencies"] | GROUPS)[name]
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


def locked() -> dict[str, tuple[Version, int]]:
    """The pinned version of each package, and how many hashes it has."""
    text = (REPOSITORY / "requirements.lock").read_text()
    entries = re.findall(
        r"^([\w.-]+)==([^\s\\]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)$", text, re.M
    )
    return {canonicalize_name(n): (Version(v), h.count("sha256")) for n, v, h in entries}


@pytest.mark.parametrize(
    ("folders", "groups", "leave_out"),
    [
        (("launcher", "tui"), ("yaml",), "tui/web"),
        (("tui/web",), ("web",), ""),
        (("trainer",), ("trainer",), ""),
        (("tests", "bench", "docs"), ("all", *GROUPS), ""),
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
    for name, each in requirements("all", *GROUPS).items():
        assert pinned[name][0] in each.specifier, each
    for each in requirements("all").values():
        assert any(one.operator == "<" for one in each.specifier), each


@pytest.mark.parametrize("extra", Extra)
def test_each_extra_is_looked_for_by_its_modules(extra: Extra) -> None:
    """The modules are of packages that the extra declares."""
    declared = {
        canonicalize_name(Requirement(text).name)
        for text in PROJECT["optional-dependencies"][extra]
    }
    assert {canonicalize_name(module) for module in MODULES[extra]} <= declared


def test_the_pinned_versions_run_on_the_oldest_python() -> None:
    """That of Debian 12: some packages want a later 3.11."""
    assert Version("3.11") in SpecifierSet(PROJECT["requires-python"])
    wanted = {
        f"{each.name} {each.version}": SpecifierSet(each.metadata["Requires-Python"])
        for each in distributions()
        if "Requires-Python" in each.metadata
    }
    assert [name for name, versions in wanted.items() if "3.11.2" not in versions] == []


VERSIONS, SYSTEMS = ("3.11", "3.12", "3.13"), ("Linux", "Darwin")


def needed(version: str, system: str) -> set[str]:
    """The packages of `requirements.in`, and whatever they need on this Python and system; each is
    locked, and in a version that suits whoever needs it."""
    environ = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "platform_system": system,
        "sys_platform": system.lower(),
        "platform_machine": "arm64" if system == "Darwin" else "x86_64",
    }
    pinned, names, seen = locked(), set[str](), set[tuple[str, str]]()
    lines = (REPOSITORY / "requirements.in").read_text().splitlines()
    wanted = [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]
    while wanted:
        each = wanted.pop()
        name = canonicalize_name(each.name)
        names.add(name)
        assert pinned[name][0] in each.specifier, each
        for extra in ("", *each.extras):
            if (name, extra) in seen or name not in INSTALLED:
                continue
            seen.add((name, extra))
            for more in map(Requirement, requires(name) or ()):
                marker = more.marker
                if marker is None or marker.evaluate({**environ, "extra": extra}):
                    wanted.append(more)
    return names


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_lock_file_is_complete_on_every_system(version: str, system: str) -> None:
    """What a package needs on another version or system only is in it, too."""
    assert needed(version, system)


def test_the_lock_file_holds_names_versions_and_hashes() -> None:
    """The lock file has every package of `requirements.in` and whatever they need, and nothing
    else."""
    text = (REPOSITORY / "requirements.lock").read_text()
    pinned = locked()
    assert all(hashes for _, hashes in pinned.values())
    lines = [line for line in text.splitlines() if not line.startswith(("#", "    --hash=sha256:"))]
    assert len([line for line in lines if line]) == len(pinned)
    assert "://" not in text
    everywhere = [needed(version, system) for version in VERSIONS for system in SYSTEMS]
    assert pinned.keys() == set[str]().union(*everywhere)


PRIVATE = re.compile("_[a-zA-Z]\\w*")


def defined(tree: ast.AST) -> set[str]:
    """The names that a module gives to functions, classes, attributes and variables."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


def inherited(module: ModuleType) -> set[str]:
    """The private attributes of Textual's classes that classes of a module use as their own."""
    names = set()
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            bases = [base for base in value.__mro__ if base.__module__.startswith("textual.")]
            names |= attributes(value) & set[str]().union(*map(attributes, bases))
    return names


@cache
def attributes(kind: type) -> set[str]:
    """The private attributes of its instances that a class names."""
    return {
        node.attr
        for node in ast.walk(ast.parse(dedent(getsource(kind))))
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def overridden(module: ModuleType) -> set[str]:
    """The private methods of Textual's classes that classes of a module override."""
    return {
        name
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
        for name, method in vars(value).items()
        if PRIVATE.fullmatch(name) and isinstance(method, FunctionType)
        if any(
            base.__module__.startswith("textual.") and name in vars(base)
            for base in value.__mro__[1:]
        )
    }


def test_private_names_of_textual_are_listed() -> None:
    """A minor version of Textual may change them: whoever raises its bound looks at each."""
    files = [file for file in (REPOSITORY / "tui").rglob("*.py") if file.parent.name != "web"]
    trees = [ast.parse(file.read_text()) for file in files]
    ours = set[str]().union(*map(defined, trees))
    used = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr)
    }
    for file in files:
        name = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        module = import_module(name.removesuffix(".__init__"))
        theirs_here = overridden(module) | inherited(module)
        used |= theirs_here
        ours -= theirs_here
    modules = {
        node.module
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and re.match(r"textual\b.*\._", node.module or "")
    }
    assert not modules, "private modules"
    text = (REPOSITORY / "pyproject.toml").read_text()
    comment = text[: text.index('    "textual>=')].rpartition('",')[2].rpartition("Private:")[2]
    theirs = set[str]()
    for file in Path(textual.__file__).parent.rglob("*.py"):
        source = file.read_text()
        if any(name in source for name in used - ours):
            theirs |= defined(ast.parse(source))
    assert set(PRIVATE.findall(comment)) == (used - ours) & theirs
