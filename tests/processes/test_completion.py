"""`tfmux completion`: the shells themselves read the script and say what they offer."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.living_runs import Holder, LivingRun, entry_path
from tests.support.command import run
from tests.support.patience import PATIENCE
from tests.support.requirements import require
from tui import demos
from tui.main import COMMANDS, build_parser

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
