"""Launches through commands (`via`) that do more than pass on: what is said, and what is left."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import command
from tests.support.command import Up
from tests.support.requirements import require_testbed
from tests.support.scenario import confirmed, ready
from tests.support.via import ALL, cluster, commands, gone, table
from tests.testbed import proc


def test_a_command_that_goes_on(tmp_path: Path) -> None:
    """What the far process leaves behind in the command's session is ended with the run."""
    require_testbed()
    via = ["sh", "-c", '"$@"; exec sleep 4711', "sh"]
    file = cluster(tmp_path, table(via, sys.executable), ["c1"] * 3)
    file.write_text(file.read_text().replace("/tmp/ledger", str(tmp_path / "ledger")))
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    gone(lambda: commands(up.run_id), "no command is left")


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is started, and it is said why: exit 3."""
    file = cluster(tmp_path, table(["no-such-program"]), ["c1"] * 3)
    done = command.run("up", str(file), "--headless")
    assert done.returncode == 3 and "there is no program no-such-program" in done.stderr
    assert "install it, or correct via" in done.stderr


BAD = {
    "terminal": (["script", "-qec", "{command}", "/dev/null"], "a terminal is in between"),
    "buffers": (["sh", "-c", "{command} | dd bs=1M iflag=fullblock status=none"], "holds output"),
    "line ends": (["sh", "-c", "{command} | sed -u 's/$/\\r/'"], "changes line ends"),
    "needs a terminal": (["sh", "-c", "test -t 0 || exit 7", "-t"], "has no terminal to give it"),
    "ends at once": (["true"], "ended with status 0 before the agent had started"),
    "says nothing": (["sh", "-c", "exec sleep SECONDS"], "gave no answer in 30 s (no output)"),
}


@pytest.mark.parametrize(("via", "said"), BAD.values(), ids=BAD)
def test_commands_that_do_not_pass_on(via: Sequence[str], said: str, tmp_path: Path) -> None:
    """Nothing is started: exit 3, with the command's name and what to change."""
    require_testbed()
    seconds = str(1_000_000 + os.getpid())  # other tests have commands of their own meanwhile
    via = [word.replace("SECONDS", seconds) for word in via]
    file = cluster(tmp_path, table(via, sys.executable), ["c1"] * 3)
    done = command.run("up", str(file), "--headless")
    assert done.returncode == 3, done.stderr
    assert f"via: {shlex.join(via)}"[:40] in done.stderr and said in done.stderr, done.stderr
    gone(
        lambda: [p for p in proc.scan(saying=seconds) if p.alive and seconds in p.argv],
        "no command is left",
    )


def test_a_command_that_prints_first(tmp_path: Path) -> None:
    """A banner is skipped."""
    require_testbed()
    via = ["sh", "-c", 'echo "Welcome to c1"; echo; exec "$@"', "sh"]
    file = cluster(tmp_path, table(via, sys.executable), ["c1"] * 3, env=', SECONDS = "1"')
    file.write_text(file.read_text().replace("/tmp/ledger", str(tmp_path / "ledger")))
    done = command.run("up", str(file), "--headless")
    assert done.returncode == 0 and "Welcome" not in done.stdout, done.stderr


def test_a_command_that_loses_its_input_once(tmp_path: Path) -> None:
    """As `podman exec` does at times: it is tried a second time before it is refused."""
    require_testbed()
    first = shlex.quote(str(tmp_path / "first"))
    script = f'if mkdir {first} 2>/dev/null; then exec "$@" </dev/null; fi; exec "$@"'
    via = ["sh", "-c", script, "sh"]
    file = cluster(tmp_path, table(via, sys.executable), ["c1"] * 3, env=', SECONDS = "1"')
    file.write_text(file.read_text().replace("/tmp/ledger", str(tmp_path / "ledger")))
    done = command.run("up", str(file), "--headless")
    assert done.returncode == 0 and (tmp_path / "first").is_dir(), done.stderr
