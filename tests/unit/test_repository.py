"""Files of the repository that other programs read: workflows, templates, hooks, the citation."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import REPOSITORY

GITHUB = REPOSITORY / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROGRAMS = {"gh", "git", "python", "tar", "tfmux"}
"""Those that a workflow's machine has, or has installed."""
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def read(path: Path) -> Any:
    """Read a YAML file; a key that stands twice is an error."""

    class Loader(yaml.SafeLoader):
        """Loader of one file."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [loader.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{path}: {keys}"
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return yaml.load(path.read_text(), Loader)


def make_targets() -> set[str]:
    """The verbs of the Makefile."""
    found = re.search(r"^\.PHONY: (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return set(found[1].split())


def steps(workflow: Path) -> list[dict[str, Any]]:
    """All steps of all jobs."""
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


def test_there_are_the_four_workflows() -> None:
    """Checks, tests, soaks and releases."""
    assert [path.stem for path in WORKFLOWS] == ["check", "release", "soak", "test"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_there_is(workflow: Path) -> None:
    """Each line is a verb of the Makefile, a script of the repository or a known program; actions
    are pinned by their major version, and nothing may write but where it is said."""
    content = read(workflow)
    assert content["name"] == workflow.stem and content[True], "its triggers; YAML reads `on` so"
    assert set(content["permissions"]) == {"contents"}
    assert (content["permissions"]["contents"] == "write") == (workflow.stem == "release")
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= (360 if workflow.stem == "soak" else 120)
        assert "latest" not in job["runs-on"]
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step["uses"]), step
            continue
        for line in step["run"].splitlines():
            program, *words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "VALUE", line))
            if program == "make":
                verbs = [word for word in words if "=" not in word]
                assert verbs and set(verbs) <= make_targets(), line
            elif "/" in program:
                assert os.access(REPOSITORY / program, os.X_OK), line
            else:
                assert program in PROGRAMS, line


def test_the_tests_run_on_every_declared_version() -> None:
    """The oldest at a push, the others at night; for the newest TensorFlow has wheels."""
    pushed = read(GITHUB / "workflows" / "test.yml")["jobs"]["test"]["container"]["image"]
    matrix = read(GITHUB / "workflows" / "soak.yml")["jobs"]["pythons"]["strategy"]["matrix"]
    tested = [pushed.removeprefix("python:").removesuffix("-bookworm"), *matrix["python"]]
    prefix = "Programming Language :: Python :: 3."
    declared = [f"3.{c[len(prefix) :]}" for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert tested == declared == ["3.11", "3.12", "3.13"]


@pytest.mark.parametrize("form", ["bug", "idea"])
def test_issue_forms_are_forms(form: str) -> None:
    """With the keys that they must have, and ids that differ."""
    content = read(GITHUB / "ISSUE_TEMPLATE" / f"{form}.yml")
    assert content["name"] and content["description"]
    ids = [part["id"] for part in content["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids)) and ids
    assert all(part["attributes"].get("label") for part in content["body"] if "id" in part)


def test_hooks_before_a_commit_run_the_pinned_tools() -> None:
    """The same ones as `make check`, from the same place."""
    check = (REPOSITORY / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    (repository,) = read(REPOSITORY / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        folder, _, program = hook["entry"].split()[0].rpartition("/")
        assert folder == ".venv/bin" and f"$(BIN)/{program}" in check


def test_the_citation_has_no_second_copy_of_the_version() -> None:
    """The keys that its format demands, and no more facts than needed."""
    content = read(REPOSITORY / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(content)
    assert content["license"] == PROJECT["license"] and "version" not in content


def test_the_steps_of_a_release_name_the_version_that_is_next() -> None:
    """And files and verbs that are there."""
    text = (REPOSITORY / "RELEASING.md").read_text()
    assert f"v{PROJECT['version']}" in text
    for verb in re.findall(r"`make (\w+)", text):
        assert verb in make_targets(), verb
    for name in re.findall(r"`([\w./-]+\.(?:md|toml))`", text):
        assert (REPOSITORY / name).exists(), name


def test_no_test_imports_the_module_of_another_one() -> None:
    """What tests share is in `tests/support` and `tests/testbed`."""
    pattern = re.compile(r"^\s*(?:from|import) tests\.(?!support\b|testbed\b)\S+", re.MULTILINE)
    found = [
        f"{path.relative_to(REPOSITORY)}: {line}"
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        for line in pattern.findall(path.read_text())
    ]
    assert not found, "\n".join(found)
