"""Commands, programs and shell text as people type them: imported, repaired, and run for real."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from launcher.cluster.read import load
from tests.support import command
from tests.support.advice import carried_out
from tests.support.budgets import variants
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


TF_CONFIG = '{"cluster": {"ps": ["tf1:2222"], "worker": ["10.0.0.2:2222", "tf3:2222"]}}'
TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist-dist}
spec:
  tfReplicaSpecs:
    PS: &replica
      replicas: 1
      template:
        spec:
          containers:
          - image: registry.local/mnist:1
            command: [python, mnist.py, '{"lr": 1}']
            env:
            - {name: RATE, value: "0.1"}
            - {name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}
    Worker:
      <<: *replica
      replicas: 3
"""
COMPOSE = """\
services:
  worker0: &worker
    image: me/train
    command: train.py --job_name worker --worker_hosts=worker0:8888 --ps_hosts="ps0:7777"
    environment: [RATE=1]
  ps0:
    <<: *worker
    command: train.py --job_name ps --worker_hosts=worker0:8888 --ps_hosts="ps0:7777"
  web: {image: nginx}
"""
PROCFILE = """\
ps: python t.py --job_name=ps --task_index=0 --ps_hosts=localhost:2222 --worker_hosts=localhost:2223
worker: python t.py --job_name=worker --ps_hosts=localhost:2222 --worker_hosts=localhost:2223 2>&1
"""


def imports_run(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, with a text on its stdin."""
    (folder / "stdin").write_text(stdin)
    script = 'cd "$0" && exec "$@" < stdin'
    return command.run(*words, prefix=("sh", "-c", script, str(folder)))


def test_a_piped_tf_config_becomes_a_file(tmp_path: Path) -> None:
    """Given a TF_CONFIG on stdin, when `tfmux import` reads it, then stdout is a cluster file with
    its hosts, jobs and ports, and stderr one sentence."""
    done = imports_run(tmp_path, "import", "-", stdin=f"TF_CONFIG='{TF_CONFIG}' python3 main.py -v")
    assert done.returncode == 0, done.stderr
    made = tomllib.loads(done.stdout)
    assert made["jobs"] == {
        "ps": {"tasks": ["tf1:2222"]},
        "worker": {"tasks": ["host1:2222", "tf3:2222"]},
    }
    assert made["hosts"]["host1"] == {"ssh": "10.0.0.2"}
    assert made["run"]["command"] == ["{python}", "main.py", "-v"]
    assert done.stderr == (
        "tfmux: stdin: a TF_CONFIG: 1 ps and 2 workers on 10.0.0.2, tf1, tf3, ports as given\n"
    )


def test_a_host_list_becomes_workers(tmp_path: Path) -> None:
    """Given a host file with slots, when it is imported with `--save`, then the file has a worker
    with a free port for each slot; a second `--save` changes nothing and is exit 2."""
    (tmp_path / "hosts").write_text("tf1 slots=2\ntf2  # slow\n")
    words = ("import", "hosts", "--save", "two.toml")
    done = imports_run(tmp_path, *words)
    assert done.returncode == 0 and done.stdout == ""
    assert "2 hosts, tf1, tf2, 3 slots; the line after # is left out" in done.stderr
    assert "the command is an example" in done.stderr
    cluster = load(tmp_path / "two.toml")
    assert [str(task) for task in cluster.jobs["worker"].tasks] == [
        "tf1:auto",
        "tf1:auto",
        "tf2:auto",
    ]
    before = (tmp_path / "two.toml").read_text()
    done = imports_run(tmp_path, *words)
    assert done.returncode == 2 and "two.toml exists: name another file" in done.stderr
    assert (tmp_path / "two.toml").read_text() == before


def test_a_command_like_the_example(tmp_path: Path) -> None:
    """Given a command line whose program is that of the example, when it is imported, then the file
    has it, and does not say that it is an example."""
    done = imports_run(tmp_path, "import", stdin="torchrun --nproc-per-node=2 train.py\n")
    assert done.returncode == 0, done.stderr
    assert tomllib.loads(done.stdout)["run"]["command"] == ["{python}", "train.py"]
    assert "example" not in done.stdout + done.stderr


def test_a_pipe_that_is_written_later() -> None:
    """Given a pipe as the file, into which a program writes only after a while, when it is
    imported, then the command waits for the text."""
    script = 'exec "$@" <(sleep 2; echo tf1,tf2)'
    done = command.run("import", prefix=("bash", "-c", script, "bash"))
    assert done.returncode == 0, done.stderr
    assert set(tomllib.loads(done.stdout)["hosts"]) == {"tf1", "tf2"}


@variants(
    ("name", "text", "tasks", "command_line", "said"),
    [
        (
            "job.yaml", TFJOB, {"ps": 1, "worker": 3}, ["python", "mnist.py", '{{"lr": 1}}'],
            ("a TFJob: 1 ps and 3 workers on this machine", "registry.local/mnist:1", "KEY"),
        ),
        (
            "docker-compose.yml", COMPOSE, {"worker": 1, "ps": 1},
            ["train.py", "--job_name", "{job}", "--worker_hosts={worker_hosts}",
             "--ps_hosts={ps_hosts}"],
            ("a Compose file", "me/train", "web is left out"),
        ),
        (
            "Procfile", PROCFILE, {"ps": 1, "worker": 1}, None, ("a Procfile", "ports as given"),
        ),
    ],
    test=1,
)  # fmt: skip
def test_a_definition_of_another_program(
    tmp_path: Path,
    name: str,
    text: str,
    tasks: dict[str, int],
    command_line: list[str] | None,
    said: tuple[str, ...],
) -> None:
    """Given a TFJob, a Compose file or a Procfile, when it is imported, then its jobs, commands and
    variables are in the file, and what was left out is in the sentence and above the file."""
    (tmp_path / name).write_text(text)
    done = imports_run(tmp_path, "import", name, "--save", "made.toml")
    assert done.returncode == 0, done.stderr
    cluster = load(tmp_path / "made.toml")
    assert {job: len(entry.tasks) for job, entry in cluster.jobs.items()} == tasks
    if command_line is not None:
        assert list(cluster.run.command or ()) == command_line
    made = (tmp_path / "made.toml").read_text()
    for part in said:
        assert part in done.stderr and part in made
    assert imports_run(tmp_path, "plan", "made.toml").returncode == 0


@pytest.mark.prove
def test_other_commands_name_the_way(tmp_path: Path) -> None:
    """Given a host file or a TFJob, when it is launched, checked or planned, then exit 2 says what
    it is and which command makes a cluster file of it; that command does."""
    (tmp_path / "hosts").write_text("tf1 slots=2\ntf2\n")
    (tmp_path / "job.yaml").write_text(TFJOB)
    for words in (["up"], ["check"], ["plan"], ["up", "--json"]):
        done = imports_run(tmp_path, *words, "job.yaml")
        assert done.returncode == 2 and done.stdout == ""
        assert "job.yaml is not a cluster file, but a TFJob: 1 ps and 3 workers" in done.stderr
    done = imports_run(tmp_path, "plan", "hosts")
    assert "hosts is not a cluster file, but 2 hosts, tf1, tf2, 3 slots" in done.stderr
    way = done.stderr.rpartition("convert it with tfmux ")[2].split()
    assert imports_run(tmp_path, *way).returncode == 0
    assert len(load(tmp_path / way[-1]).jobs["worker"].tasks) == 3
    (tmp_path / "pod.yaml").write_text("kind: Pod\n")
    done = imports_run(tmp_path, "up", "pod.yaml")
    assert done.returncode == 2 and "a Kubernetes Pod" in done.stderr


def test_yaml_needs_its_extra(tmp_path: Path) -> None:
    """Given no PyYAML, when a TFJob, a Compose file or an inventory is imported, then exit 2 names
    the extra to install; what is no YAML needs none."""
    (tmp_path / "yaml.py").write_text("raise ImportError\n")
    inventory = "all:\n  hosts:\n    tf1:\n"
    for name, text in (("j.yaml", TFJOB), ("c.yaml", COMPOSE), ("i.yaml", inventory), ("h", "tf1")):
        (tmp_path / name).write_text(text)
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from tui.main import main; sys.exit(main(sys.argv[1:]))"
    )
    found = {
        name: subprocess.run(
            [sys.executable, "-P", "-c", program, str(tmp_path), "import", str(tmp_path / name)],
            capture_output=True,
            text=True,
        )
        for name in ("j.yaml", "c.yaml", "i.yaml", "h")
    }
    assert found.pop("h").returncode == 0
    for done in found.values():
        assert done.returncode == 2 and done.stdout == ""
        assert "reading YAML needs PyYAML: pip install 'tfmux[yaml]'" in done.stderr


def test_yaml_that_grows_is_refused(tmp_path: Path) -> None:
    """Given YAML whose merged mappings would grow to millions of keys, when it is imported, then it
    is refused."""
    levels = ["l0: &l0 {" + ", ".join(f"k{n}: 1" for n in range(60)) + "}"]
    for n in range(1, 9):
        levels.append(f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 60)}]}}")
    (tmp_path / "c.yaml").write_text("services:\n  worker: {command: x}\n" + "\n".join(levels))
    done = imports_run(tmp_path, "import", "c.yaml")
    assert done.returncode == 2 and "merged too often" in done.stderr
