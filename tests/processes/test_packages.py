"""Wheel and sdist: what is in them, and a base installation of the wheel, without any extra."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from glob import glob
from importlib import metadata
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.testbed.inprocess import SshServer

pytestmark = [pytest.mark.xdist_group("packages")]  # one wheel for all
PACKAGES = ("launcher", "tui", "trainer")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
VERSIONS = [f"3.{minor}" for minor in range(11, 15)]
"""Supported ones, and the next."""
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
TASKS = cluster_text(
    {"worker": 2},
    "two",
    command=["sh", "-c", "echo {job} {index} says hello"],
    workdir="",
    success="all",
)
HOSTS = """
name = "remote"
[hosts.tf1]
ssh = "tf1.invalid"
[jobs.worker]
tasks = ["tf1:2222"]
[run]
workdir = ""
command = ["{python}", "{trainer}", "async"]
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a wheel and an sdist, made of this tree without a network."""
    folder = tmp_path_factory.mktemp("dist")
    build(REPOSITORY, folder, "sdist", "wheel")
    return folder


def build(tree: Path, folder: Path, *kinds: str) -> None:
    """Builds this tree into `folder`."""
    targets = [part for kind in kinds for part in ("-t", kind)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder, *targets],
        cwd=tree,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """Return the wheel."""
    (found,) = built.glob("*.whl")
    return found


def sources(*folders: str) -> set[str]:
    """The files of these folders, by their paths in the repository."""
    return {
        str(path.relative_to(REPOSITORY))
        for folder in folders
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.prove
def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    """No tests, no pictures; marked as typed. The trainer is in a folder of its own."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    trainer = {f"launcher/bundled/{name}" for name in sources("trainer")}
    assert names == sources("launcher", "tui") | trainer
    assert {f"{package}/py.typed" for package in ("launcher", "tui")} <= names


def contents(wheel: Path) -> dict[str, bytes]:
    """The files in it, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.prove
def test_the_sdist_holds_what_a_build_and_the_tests_need(
    built: Path, wheel: Path, tmp_path: Path
) -> None:
    """And a wheel that is built from it is the same."""
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    shutil.unpack_archive(file, tmp_path)
    build(tmp_path / file.name.removesuffix(".tar.gz"), tmp_path, "wheel")
    assert contents(tmp_path / wheel.name) == contents(wheel)
    assert names >= sources(*PACKAGES, "tests", "docs/examples")
    assert names >= {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "requirements.lock"}
    assert not [name for name in names if name.startswith((".venv", "dist", ".git/"))]


def test_the_metadata_is_that_of_the_project(wheel: Path) -> None:
    """The version stands in `pyproject.toml` alone; the README goes along as Markdown."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = email.message_from_string(archive.read(name).decode())
    assert (message["Name"], message["Version"]) == ("tfmux", PROJECT["version"])
    assert set(message.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert message["Description-Content-Type"] == "text/markdown"
    assert message["License-Expression"] == "MIT"
    shown = MarkdownIt("commonmark").enable("table").render(str(message.get_payload()))
    assert "<h1>tfmux</h1>" in shown and "<table>" in shown and "```" not in shown
    text = rf'"(?:\d+\.)?{re.escape(PROJECT["version"])}"'
    for path in (p for p in sources(*PACKAGES) if p.endswith(".py")):
        assert not re.search(text, (REPOSITORY / path).read_text()), f"{path} has the version, too"


# --- a base installation ------------------------------------------------------------------


def base_distributions() -> set[str]:
    """The dependencies without any extra, and theirs, by name."""
    found: set[str] = set()
    wanted = [Requirement(text) for text in PROJECT["dependencies"]]
    while wanted:
        each = wanted.pop()
        name = canonicalize_name(each.name)
        if name in found:
            continue
        found.add(name)
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            extras = ("", *each.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                wanted.append(needed)
    return found


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` of an environment with the wheel and the base dependencies: links to those
    of this environment. Nothing else can be imported there."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in base_distributions():
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            place = site / top
            if not place.exists():
                place.symlink_to(Path(str(distribution.locate_file(top))).resolve())
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run(
        [*command, "install", "--no-deps", "--no-index", "--no-compile", "--quiet", str(wheel)],
        check=True,
        timeout=PATIENCE,
    )
    return folder / "bin"


def tfmux(base: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command of the base installation, away from the repository."""
    done = subprocess.run(
        [base / "tfmux", *words], cwd=base, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.prove
def test_a_base_installation_has_neither_trainer_nor_browser(base: Path) -> None:
    """What the extras bring is really not there."""
    names = "tensorflow", "tensorboard", "numpy", "aiohttp", "textual_serve", "pytest"
    script = f"from importlib.util import find_spec; print([*filter(find_spec, {names!r})])"
    done = subprocess.run([base / "python", "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.prove
def test_a_base_installation_imports_all_but_the_server_of_pages(base: Path) -> None:
    """What needs an extra is in the modules of it alone."""
    script = """
import importlib, pkgutil, launcher, tui
for package in (launcher, tui):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(each.name)
        except ModuleNotFoundError as error:
            print(each.name, error.name)
"""
    done = subprocess.run([base / "python", "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["tui.web.access", "aiohttp", "tui.web.page_server", "aiohttp"], (
        done
    )


@pytest.mark.prove
def test_a_base_installation_answers(base: Path, tmp_path: Path) -> None:
    """Version, help, plan, doctor and completion; the bundled trainer's sources are there."""
    assert tfmux(base, "--version").stdout == f"tfmux {PROJECT['version']}\n"
    assert "usage: tfmux" in tfmux(base, "--help").stdout
    assert "async" in tfmux(base, "demo", "--list").stdout
    plan = json.loads(tfmux(base, "plan", str(write(tmp_path, HOSTS)), "--json").stdout)
    assert plan["tasks"][0]["argv"][1].endswith("/trainer")
    local = HOSTS.replace('[hosts.tf1]\nssh = "tf1.invalid"\n', "").replace("tf1:", "localhost:")
    plan = json.loads(tfmux(base, "plan", str(write(tmp_path, local)), "--json").stdout)
    trainer = Path(plan["tasks"][0]["argv"][1])
    assert (trainer / "__main__.py").is_file()
    assert os.listdir(trainer.parent) == ["trainer"], "other packages would be on PYTHONPATH, too"
    found = [line.split() for line in tfmux(base, "doctor").stdout.splitlines()]
    assert ["versions", "tfmux:", PROJECT["version"]] in found
    assert [line[-1] for line in found if "tensorflow:" in line] == ["none"]
    assert [line[-1] for line in found if "textual:" in line] != ["none"]
    assert "complete" in tfmux(base, "completion", "bash").stdout


@pytest.mark.prove
def test_a_base_installation_says_in_one_line_what_to_install(base: Path) -> None:
    """The demos and the UI in a browser say what to install; nothing is started."""
    for command, module, extra in (("demo", "tensorflow", "trainer"), ("serve", "aiohttp", "web")):
        done = tfmux(base, command, code=2)
        assert not done.stdout
        assert re.fullmatch(
            rf"tfmux: .* need {module}, which is not installed: pip install 'tfmux\[{extra}\]'\n",
            done.stderr,
        )


@pytest.mark.prove
def test_a_base_installation_launches(base: Path, tmp_path: Path) -> None:
    """Two tasks that are no Python at all; launcher and agent need no extra."""
    done = tfmux(base, "up", str(write(tmp_path, TASKS)), "--headless")
    for index in (0, 1):
        assert f"worker:{index} | worker {index} says hello" in done.stdout


@pytest.mark.soak
def test_a_base_installation_trains_on_hosts_that_have_tensorflow(
    base: Path, ssh_server: SshServer, tmp_path: Path
) -> None:
    """The bundled trainer is brought there from a machine that could not run it."""
    host = ssh_server.host_toml("tf1", sys.executable)
    text = HOSTS.replace('[hosts.tf1]\nssh = "tf1.invalid"\n', host).replace("2222", "auto")
    file = write(tmp_path, text.replace('"async"', '"tour", "hello"'))
    done = tfmux(base, "up", str(file), "--headless")
    assert "worker:0 | " in done.stdout and "no process is left" in done.stderr


# --- other versions of Python -------------------------------------------------------------


def interpreter_of(version: str) -> str:
    """An interpreter of this machine, or a skip; each is tried, since a shim of pyenv is there for
    versions, too, that are not chosen."""
    named = shutil.which(f"python{version}")
    others = sorted(glob(f"{PYENV}/{version}.*/bin/python{version}"))
    paths: list[str] = [*([named] if named else ()), *others]
    for path in paths:
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_every_interpreter_here_takes_the_sources(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """Compiled with warnings as errors, and the command line answers with the standard library
    alone. Its dependencies have compiled parts for one version only."""
    interpreter = interpreter_of(version)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    argv = [interpreter, "-W", "error", "-m", "compileall", "-q", "-f", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    argv = [interpreter, "-W", "error", "-S", "-P", "-m", "tui.main", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=PATIENCE)
    assert done.returncode == 0 and "usage: tfmux" in done.stdout, done.stderr
