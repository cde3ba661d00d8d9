"""Every command in the manual is run, in order, in a scratch folder with a home of its own.

One shell runs the commands of a page. What the page shows below a command must be in the command's
output, in this order; other lines may stand between, and `…` stands for any text. A command must
succeed, unless the page goes on with `; echo $?`.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.manual import DOCS, Page, pages
from tests.support.patience import PATIENCE
from tests.support.requirements import require, require_testbed
from tests.testbed import podman
from tests.testbed.namespaces import Testbed
from tests.testbed.podman import PodmanBed

_SENTINEL = "tfmux-manual-command-ended"
RUN = [page for page in pages() if page.runs]
LONG = ("tutorials", "first-cluster", "troubleshooting", "cluster-file", "hosts", "from-tmux")
"""Pages that train at length, or repeat commands of others: `make prove` runs them."""


class Shell:
    """A shell that is given one command after the other."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""

    def run(self, line: str) -> tuple[int, list[str]]:
        """Runs a command; its status and its output."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\nset -- $?; echo; echo {_SENTINEL} $1\n".encode())
        self._process.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        end = re.compile(rf"\n{_SENTINEL} (\d+)\n".encode())
        while (found := end.search(self._buffer)) is None:
            assert self._selector.select(deadline - time.monotonic()), f"{line}: it does not end"
            chunk = os.read(self._process.stdout.fileno(), 65536)
            assert chunk, f"{line}: the shell has ended: {self._buffer.decode()}"
            self._buffer += chunk
        output = self._buffer[: found.start()].decode().splitlines()
        self._buffer = self._buffer[found.end() :]
        return int(found[1]), output

    def close(self) -> None:
        """Ends the shell, and what it has started and left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            with ExitStack() as quietly:
                quietly.callback(self._process.wait)
                if self._process.poll() is None:
                    os.killpg(self._process.pid, signal.SIGKILL)


@contextmanager
def _shell(folder: Path) -> Iterator[Shell]:
    shell = Shell(folder)
    try:
        yield shell
    finally:
        shell.close()


def _missing(shown: list[str], output: list[str]) -> str | None:
    """The first of the lines shown that does not come in the output after the ones before it."""
    lines = iter(output)
    for line in shown:
        pattern = re.compile(".*".join(map(re.escape, line.strip().split("…"))))
        if not any(pattern.fullmatch(each.strip()) for each in lines):
            return line
    return None


def _marked(page: Page) -> Any:
    marks = [pytest.mark.prove] if page.path.stem in LONG else []
    return pytest.param(page, marks=marks, id=str(page))


@pytest.mark.parametrize("page", map(_marked, RUN))
def test_the_commands_of_a_page(page: Page, tmp_path: Path, tfmux_home: Path) -> None:
    """They run, and print what the page shows."""
    folder = tmp_path / "work"
    shutil.copytree(DOCS / "examples", folder)
    with ExitStack() as stack:
        if page.needs_hosts:
            require_testbed()
            stack.enter_context(Testbed()).give_access(tfmux_home)
        if page.needs_podman:
            require(podman.missing())
            stack.enter_context(PodmanBed())
        shell = stack.enter_context(_shell(folder))
        for block in page.blocks:
            if block.file:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.body)
            if block.not_run is not None:
                continue
            for line, shown in block.commands():
                status, output = shell.run(line)
                said = f"{page}:{block.line}: {line}\n" + "\n".join(output[-40:])
                assert status == 0, f"status {status} of {said}"
                missing = _missing(shown, output)
                assert missing is None, f"no {missing!r} in {said}"
