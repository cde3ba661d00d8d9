"""Why a task was not started: found on its host, and said the same way everywhere."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write

PATHS = "/usr/bin:/bin"


def elf(machine: int, loader: bytes = b"") -> bytes:
    """The head of a compiled program for a processor, that names a loader."""
    kind = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    table = struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(loader) + 1, len(loader) + 1, 1)
    return kind + header + table + loader + b"\0"


HERE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
OTHER, ITS_NAME = (183, "aarch64") if HERE == 62 else (62, "x86_64")
FILES: dict[str, bytes] = {
    "plain.sh": b"#!/bin/sh\necho\n",
    "windows.sh": b"#!/usr/bin/bash\r\necho a\r\n",
    "windows.py": b"#!/usr/bin/env python3\r\nprint()\r\n",
    "absent.sh": b"#!/no/such/shell -x\n",
    "env.py": b"#!/usr/bin/env no-such-python\n",
    "bare": b"echo a\n",
    "nothing": b"",
    "other": elf(OTHER),
    "libc": elf(HERE, b"/lib/no-such-loader.so.1"),
    "train.exe": b"MZ\x90\0" + bytes(100),
    "needs.sh": b"#!/bin/sh\n# torchrun\nset -e\nno-such-torchrun --nnodes 2 train.py\n",
}
# For each task its command, its `setup`, and what is said; {} is the workdir.
KERNEL = {
    "name": (
        ["no-such-python3.12", "train.py"],
        "",
        f"no-such-python3.12 is not in PATH ({PATHS})",
    ),
    "path": (["{here}/absent"], "", "{here}/absent: no such file"),
    "relative": (["./absent"], "", "{here}/absent: no such file"),
    "mode": (["./plain.sh"], "", "{here}/plain.sh has no execute permission"),
    "folder": (["./lib"], "", "{here}/lib is a directory"),
    "below": (["{here}/plain.sh/train"], "", "{here}/plain.sh/train: no such file"),
    "link": (
        ["./python"],
        "",
        "python is a link to /opt/gone/python3, which does not exist",
    ),
    "windows": (["./windows.sh"], "", "its interpreter /usr/bin/bash^M does not exist"),
    "windows2": (["./windows.py"], "", "its interpreter python3^M does not exist"),
    "first": (["./absent.sh"], "", "its first line names /no/such/shell: /no/such/shell: no such"),
    "bare": (["./bare"], "", "text whose first line names no interpreter"),
    "empty": (["./nothing"], "", "{here}/nothing is empty"),
    "machine": (["./other"], "", f"{{here}}/other is for another processor ({ITS_NAME})"),
    "system": (["./train.exe"], "", "{here}/train.exe is a program for Windows"),
    "loader": (["./libc"], "", "its loader /lib/no-such-loader.so.1 does not exist"),
    "gone": (["{here}/venv/bin/python", "-V"], "", "{here}/venv/bin/python: no such file"),
}
SHELLS = {
    "env": (["./env.py"], "", "first line names no-such-python: no-such-python is not in PATH"),
    "sh": (["sh", "-c", "echo a; no-such-program x && echo b"], "", "no-such-program is not in PA"),
    "list": (
        ["bash", "-ec", "A=1 no-such >log 2>&1 | cat; exit 127"],
        "",
        "no-such is not in PATH",
    ),
    "inner": (["sh", "-c", "exec env A=1 timeout 9 no-such"], "", "no-such is not in PATH"),
    "nice": (["nice", "-n", "5", "no-such", "x"], "", "no-such is not in PATH"),
    "script": (["bash", "absent.sh2"], "", "{here}/absent.sh2: no such file"),
    "inside": (["sh", "needs.sh"], "", "no-such-torchrun is not in PATH"),
    "denied": (["sh", "-c", "./plain.sh"], "", "{here}/plain.sh has no execute permission"),
    "setup": (["no-such"], "export PATH=/opt/mine:/bin", "no-such is not in PATH (/opt/mine:/bin)"),
    "moved": (["./no-such"], "cd lib", "{here}/lib/no-such: no such file"),
    "setup2": (["./windows.sh"], "set -u", "its interpreter /usr/bin/bash^M does not exist"),
    "setup3": (["./plain.sh"], "umask 77", "{here}/plain.sh has no execute permission"),
    "setup4": (["./other"], "A=1", f"{{here}}/other is for another processor ({ITS_NAME})"),
    "setup5": (["sh", "-c", "no-such"], "PATH=/opt/x:$PATH", f"not in PATH (/opt/x:{PATHS})"),
    "quiet": (["sh", "-c", "exit 127"], "", "exit 127"),
    "quiet2": (["{sys}", "-c", "raise SystemExit(126)"], "", "exit 126"),
    "quiet3": (["sh", "-c", ". ./lib.sh; no-such"], "", ""),
}


def test_what_was_not_started_is_said(tmp_path: Path) -> None:
    """Given commands that the kernel or a shell cannot start, when they are launched, then each
    task says which file or name it was and what is wrong with it; what ends with 127 or 126 of
    itself says nothing more than that."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o644 if name == "plain.sh" else 0o755)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib.sh").write_text("no-such() { exit 127; }\n")
    (tmp_path / "python").symlink_to("/opt/gone/python3")

    def filled(text: str) -> str:
        return text.replace("{here}", str(tmp_path)).replace("{sys}", sys.executable)

    cases = {**KERNEL, **SHELLS}
    jobs = {
        name: {
            "tasks": 1,
            "command": [filled(word) for word in words],
            "setup": setup,
        }
        for name, (words, setup, _) in cases.items()
    }
    text = cluster_text(
        jobs,
        hosts={"localhost": {"env": {"PATH": PATHS}}},
        framework="none",
        on_failure="keep",
        start={"order": [list(cases)]},
    )
    done = run("up", str(write(tmp_path, text)), "--json")
    assert done.returncode == 1, done.stderr
    reasons = {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        if event["event"] == "task" and event["state"] == "failed":
            reasons[event["task"].partition(":")[0]] = event
    missed = {}
    for name, (_, _, said) in cases.items():
        event = reasons[name]
        found = event["reason"] or f"exit {event['exit_code']}"
        if filled(said) not in found:
            missed[name] = (said, found)
    assert not missed, missed


def test_the_cause_is_what_the_host_has_found(tmp_path: Path) -> None:
    """Given a shell that does not find a program, when the run has failed, then the cause, the
    first failure and the task's own line have the same sentence, whatever the shell has printed."""
    command = ["sh", "-c", "no-such-torchrun --nnodes 2 2>/dev/null || (echo sorry; exit 127)"]
    hosts = {"localhost": {"env": {"PATH": PATHS}}}
    text = cluster_text({"worker": 2}, hosts=hosts, command=command, framework="none")
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 1, done.stderr
    said = f"no-such-torchrun is not in PATH ({PATHS})"
    for line in ("cause: ", "first failure: ", "  worker:"):
        assert any(each.startswith(line) and said in each for each in done.stderr.splitlines())
