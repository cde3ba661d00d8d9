"""Wheel, sdist, what they need, and the completion of shells; each command of the trainer answers
by itself."""

from __future__ import annotations

import argparse
import email
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from glob import glob
from importlib import metadata
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from launcher.paths import runs_home
from launcher.store.living_runs import Holder, LivingRun, entry_path
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.requirements import require
from tests.testbed.inprocess import SshServer
from tui import demos
from tui.main import COMMANDS, build_parser

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


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
@pytest.mark.prove
def test_a_base_installation_has_neither_trainer_nor_browser(base: Path) -> None:
    """What the extras bring is really not there."""
    names = "tensorflow", "tensorboard", "numpy", "aiohttp", "textual_serve", "pytest"
    script = f"from importlib.util import find_spec; print([*filter(find_spec, {names!r})])"
    done = subprocess.run([base / "python", "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
@pytest.mark.prove
def test_a_base_installation_launches(base: Path, tmp_path: Path) -> None:
    """Two tasks that are no Python at all; launcher and agent need no extra."""
    done = tfmux(base, "up", str(write(tmp_path, TASKS)), "--headless")
    for index in (0, 1):
        assert f"worker:{index} | worker {index} says hello" in done.stdout


@pytest.mark.xdist_group("packages")
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


@pytest.mark.xdist_group("packages")
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


ACTIVE, ENDED = "mnist-20261120-183002-7f3a", "other-20261120-183002-7f3b"
ELSEWHERE = "elsewhere-20261120-183002-7f3c"
BASH = """
source "$1"; shift
complete -p tfmux >&2
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 )) COMPREPLY=()
_shtab_tfmux
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, folder: Path) -> Path:
    """Write a shell's script into a file."""
    require(None if shutil.which(shell) else f"there is no {shell}")
    done = run("completion", shell)
    assert done.returncode == 0 and not done.stderr, done.stderr
    path = folder / f"completion.{shell}"
    path.write_text(done.stdout)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a working directory with a cluster file, in the home of a user with two runs, of which
    the first is active."""
    for name in (ACTIVE, ENDED):
        (runs_home() / name).mkdir(parents=True)
    entry = LivingRun(ACTIVE, runs_home() / ACTIVE, ("localhost",), Holder(), "/root", True)
    entry_path(ACTIVE).write_bytes(entry.line())
    elsewhere = LivingRun(ELSEWHERE, tmp_path / ELSEWHERE, (), Holder(), "/root", True)
    entry_path(ELSEWHERE).write_bytes(elsewhere.line())
    place = tmp_path / "work"
    place.mkdir()
    (place / "cluster.toml").touch()
    (place / "notes.txt").touch()
    yield place
    for name in (ACTIVE, ELSEWHERE):
        entry_path(name).unlink()


def offered(shell: str, path: Path, folder: Path, *words: str) -> set[str]:
    """What bash or fish offers for the last word of a command line."""
    if shell == "bash":
        argv = ["bash", "--norc", "-c", BASH, "bash", str(path), "tfmux", *words]
    else:
        line = " ".join(["tfmux", *words])
        argv = ["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", str(path)]
        argv.append(line)
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if shell == "bash":
        assert done.stderr.endswith("-F _shtab_tfmux tfmux\n"), done.stderr
    else:
        assert not done.stderr
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.xdist_group("packages")  # the entries of its runs are in the index of this machine
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_offers_commands_options_demos_runs_and_files(
    shell: str, tmp_path: Path, folder: Path
) -> None:
    """All from the one parser, and the runs from the disk."""
    path = script(shell, tmp_path)

    def offer(*words: str) -> set[str]:
        return offered(shell, path, folder, *words)

    assert offer("") >= set(COMMANDS)
    assert offer("demo", "") >= set(demos.names())
    for command in ("attach", "kill", "stacks"):
        assert offer(command, "") == {"mnist", ACTIVE}, command
    for words in (["logs"], ["collect"], ["rm"], ["up", "c.toml", "--resume"]):
        assert offer(*words, "") == {"mnist", ACTIVE, "other", ENDED}, words
    assert offer("logs", "o") == {"other", ENDED}
    assert offer("up", "") == {"cluster.toml"}
    assert offer("check", "--") >= {"--json", "--accept-new", "--hosts-from", "--hostfile"}
    assert offer("up", "--hosts-from", "") == {"slurm", "hostfile", "openmpi"}
    assert offer("completion", "") == {"bash", "zsh", "fish"}
    assert {"tensorflow", "torch"} <= offer("run", "--framework", "")


@pytest.mark.xdist_group("packages")
def test_zsh_offers_commands_and_runs(tmp_path: Path, folder: Path) -> None:
    """In a real zsh on a terminal, after `eval`, as `.zshrc` has it."""
    path = script("zsh", tmp_path)
    home = tmp_path / "zsh"
    home.mkdir()
    (home / ".zshrc").write_text(
        "autoload -Uz compinit; compinit -u -D; setopt no_beep; PS1='ready> '\n"
        f'zstyle ":completion:*" menu no; eval "$(<{path})"\n'
    )
    leader, follower = pty.openpty()
    environ = {**os.environ, "ZDOTDIR": str(home), "TERM": "dumb"}
    process = subprocess.Popen(
        ["zsh", "-i"],
        cwd=folder,
        env=environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    seen = ""

    def wait_for(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + PATIENCE
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([leader], [], [], 0.2)[0]:
                seen += os.read(leader, 65536).decode(errors="replace")
        seen = seen.partition(text)[2]

    try:
        wait_for("ready> ")
        os.write(leader, b"tfmux att\t")
        wait_for("attach ")
        os.write(leader, b"mn\t")
        wait_for("mnist")
        os.write(leader, b"\t")
        wait_for(ACTIVE)
        os.write(leader, b"\x15tfmux \t")
        for name in sorted(COMMANDS):
            wait_for(name)
        os.write(leader, b"\x15tfmux up clu\t")
        wait_for("cluster.toml ")
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def test_the_script_is_no_burden_for_help() -> None:
    """What makes the script is imported by that command alone."""
    code = "import sys; from tui.main import build_parser; build_parser(); "
    code += "print('shtab' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_every_command_is_in_the_parser() -> None:
    """The table of modules, and the parser that the script is made from."""
    (commands,) = (
        action.choices
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert set(commands) == set(COMMANDS)


CLUSTER = ["--ps_hosts=tf1:2222", "--worker_hosts=tf2:2222,tf3:2222"]


def test_help_names_a_default_once() -> None:
    """`--help` says each default once."""
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "async", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    defaults = [entry.count("default") for entry in done.stdout.split("\n  --")]
    assert set(defaults) == {0, 1}, done.stdout
    assert "(default: 10.0)" in done.stdout and "(default: embedded digits)" in done.stdout


def test_help_and_mistakes_answer_without_tensorflow() -> None:
    """`--help` and a usage error come from a process that has not imported TensorFlow."""
    script = (
        "import os, sys\n"
        "from trainer import __main__\n"
        "leave = os._exit\n"
        "os._exit = lambda status: leave(100 if 'tensorflow' in sys.modules else status)\n"
        "sys.argv = ['trainer', *sys.argv[1:]]\n"
        "__main__.main()\n"
    )
    for words, status, said in (
        (["async", "--help"], 0, "--worker-hosts"),
        (["--help"], 0, "asynchronous updates"),
        (["asink"], 2, "did you mean async?"),
        (["tf1", "--help"], 0, "tf1 SCRIPT ARGUMENTS…"),
        (["tour"], 2, "no tour given; one of hello, two-tasks"),
        (["tour", "--help"], 0, "tour two-tasks"),
        (["tour", "two_task"], 2, "did you mean tour two-tasks?"),
        (["async", "--job_name=ps", "--task_index=1", *CLUSTER], 2, "ps has 1 task"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert said in done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == (status == 2)
