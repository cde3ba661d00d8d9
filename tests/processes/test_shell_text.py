"""Shell text in commands and variables: what `check` advises, carried out and run for real."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from tests.support.advice import carried_out
from tests.support.command import Up, run

TELL = """\
import os, sys
print(sys.argv[1:], {name: os.environ.get(name) for name in ("A", "B", "C", "MINE")}, flush=True)
if "-" in sys.argv:
    print(sys.stdin.read())
"""
LINES = {
    "redirected": "python3 tell.py a > out.txt 2>&1",
    "glued": "python3 tell.py a >out.txt 2>err.txt",
    "appended": "python3 tell.py a >> old.txt",
    "input": "python3 tell.py - < in.txt",
    "pattern": "python3 tell.py data/*.csv",
    "tool": "cat -n data/*.csv",
    "after": "cd sub && python3 ../tell.py x",
    "semicolon": "mkdir -p made; python3 tell.py data/*.csv",
    "assigned": "A=1 B=2 python3 tell.py x",
    "assigned_more": "A=1 B=$MINE/b python3 tell.py x",
    "assigned_later": "cd sub && A=1 python3 ../tell.py x",
    "exported": "export A=1 && python3 tell.py $A",
    "variable": "python3 tell.py --a $MINE/x --b=${MINE} ${MINE:-none} ${OTHER:-none}",
    "several": "python3 tell.py $ARGS ${ARGS}",
    "in_pattern": "python3 tell.py $DATA/*.csv",
    "substituted": "python3 tell.py --a $(echo hi) --b=$(basename a/b)",
    "piped": "python3 tell.py a | tee out.txt",
    "sourced": "source env.sh && python3 tell.py",
    "nohup": "nohup python3 -u tell.py a > out.txt 2>&1 &",
    "replaced": "exec python3 tell.py a",
    "home": "python3 tell.py $HOME ~/x --c=$PWD > out.txt",
    "json": """python3 tell.py '{"a": {"b": 1}}' > out.txt""",
    "json_with_a_variable": """python3 tell.py "{'a': $MINE, 'b': ${MINE}}" > out.txt""",
}
"""Command lines as scripts have them."""


def _folder(folder: Path) -> Path:
    """A folder with what the lines read."""
    (folder / "sub").mkdir(parents=True)
    (folder / "data").mkdir()
    texts = {"tell.py": TELL, "in.txt": "input\n", "env.sh": "export A=sourced\n", "old.txt": "x\n"}
    for name, text in (texts | {"data/a.csv": "a\n", "data/b.csv": "b\n"}).items():
        (folder / name).write_text(text)
    return folder


def _files(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def _words(line: str) -> list[str]:
    """The words of a line as a person lists them in a cluster file, where braces are doubled."""
    words = shlex.split(line)
    doubled = [word.replace("{", "{{").replace("}", "}}") for word in words]
    return [two if one.startswith("{") else one for one, two in zip(words, doubled, strict=True)]


def _findings(path: Path) -> list[dict[str, Any]]:
    found = json.loads(run("check", str(path), "--json").stdout)["findings"]
    return [finding for finding in found if finding["code"] == "shell-text"]


def _repaired(path: Path, file: dict[str, Any], count: int) -> None:
    """Writes the file with what `check` advises, which has nothing more to say then."""
    path.write_text(tomlkit.dumps(file))
    findings = _findings(path)
    assert len(findings) == count, findings
    for finding in findings:
        carried_out(file, finding["todo"])
    path.write_text(tomlkit.dumps(file))
    assert _findings(path) == []


def _printed(up: Up) -> dict[str, str]:
    """What each task has printed."""
    texts: dict[str, list[str]] = {}
    for event in up.of("log"):
        texts.setdefault(event["task"].partition(":")[0], []).append(event["text"])
    return {job: "\n".join(lines).strip() for job, lines in texts.items()}


RUN = {"framework": "none", "workdir": "", "success": "all"}


@pytest.mark.prove
def test_repaired_commands_do_what_the_lines_do_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given lines of scripts as lists of words, then `check` names each of them with a repair. With
    these the file has no such finding, and its tasks print and write what bash does for the
    lines."""
    monkeypatch.setenv("MINE", "/my-own")
    monkeypatch.setenv("DATA", "data")
    monkeypatch.setenv("ARGS", "--a 1 --b 2")
    jobs: dict[str, Any] = {}
    for name, line in LINES.items():
        folder = _folder(tmp_path / "task" / name)
        job = {"tasks": ["localhost:auto"], "ready": "started", "directory": str(folder)}
        jobs[name] = job | {"command": _words(line)}
    path = tmp_path / "cluster.toml"
    _repaired(path, {"jobs": jobs, "run": RUN}, len(LINES))
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
    printed = _printed(up)
    for name, line in LINES.items():
        folder = _folder(tmp_path / "bash" / name)
        words = ["bash", "-c", line.removesuffix(" &")]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
        here = str(tmp_path / "task" / name)
        assert printed.get(name, "") == done.stdout.strip(), name
        theirs = {file: text.replace(str(folder), here) for file, text in _files(folder).items()}
        assert _files(tmp_path / "task" / name) == theirs, name


def test_the_failure_of_a_program_in_a_pipe_is_a_failure(tmp_path: Path) -> None:
    """Given a program that fails in front of `| tee`, then the repaired command fails with it, and
    is no success."""
    path = tmp_path / "cluster.toml"
    command = ["sh", "-c", "exit 3", "|", "tee", "log"]
    jobs = {"worker": {"tasks": ["localhost:auto"], "ready": "started", "command": command}}
    _repaired(path, {"jobs": jobs, "run": RUN}, 1)
    done = run("up", str(path), "--headless")
    assert done.returncode == 1 and "exit 3" in done.stderr


@pytest.mark.prove
def test_repaired_variables_have_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given `$VAR` in values of `env`, in several tables and beside a `setup`, then what `check`
    advises gives the program the value that a shell would have given it."""
    monkeypatch.setenv("MINE", "my own")
    (tmp_path / "tell.py").write_text(TELL)
    one = {"tasks": ["localhost:auto"], "ready": "started", "command": ["python3", "tell.py"]}
    jobs: dict[str, Any] = {
        "list": one | {"env": {"A": "/opt/x:$MINE", "B": "plain"}},
        "home": one | {"env": {"A": "$HOME/x", "B": "~/a:$MINE"}},
        "copied": one | {"env": {"MINE": "$MINE"}},
        "setup": one | {"env": {"A": "${MINE}/x"}, "setup": "export B=before"},
        "placeholder": one | {"env": {"A": "{job}:$MINE"}},
        "ours": one | {"env": {"A": "${job}"}},
        "command": one | {"env": {"A": "$(echo made)"}},
    }
    file = {"jobs": jobs, "run": RUN | {"workdir": "."}}
    path = tmp_path / "cluster.toml"
    _repaired(path, file, 8)
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
    home = os.environ["HOME"]
    expected = {
        "list": {"A": "/opt/x:my own", "B": "plain"},
        "home": {"A": f"{home}/x", "B": f"{home}/a:my own"},
        "copied": {},
        "setup": {"A": "my own/x", "B": "before"},
        "placeholder": {"A": "placeholder:my own"},
        "ours": {"A": "ours"},
        "command": {"A": "made"},
    }
    blank = dict.fromkeys(("A", "B", "C")) | {"MINE": "my own"}
    assert _printed(up) == {job: f"[] {blank | env}" for job, env in expected.items()}
