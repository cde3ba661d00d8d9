"""`tfmux import`: cluster files of texts that other programs have."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from launcher.cluster.read import load
from tests.support import command
from tests.support.budgets import variants

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


def run(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, with a text on its stdin."""
    (folder / "stdin").write_text(stdin)
    script = 'cd "$0" && exec "$@" < stdin'
    return command.run(*words, prefix=("sh", "-c", script, str(folder)))


def test_a_piped_tf_config_becomes_a_file(tmp_path: Path) -> None:
    """Given a TF_CONFIG on stdin, when `tfmux import` reads it, then stdout is a cluster file with
    its hosts, jobs and ports, and stderr one sentence."""
    done = run(tmp_path, "import", "-", stdin=f"TF_CONFIG='{TF_CONFIG}' python3 main.py -v")
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
    done = run(tmp_path, *words)
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
    done = run(tmp_path, *words)
    assert done.returncode == 2 and "two.toml exists: name another file" in done.stderr
    assert (tmp_path / "two.toml").read_text() == before


def test_a_command_like_the_example(tmp_path: Path) -> None:
    """Given a command line whose program is that of the example, when it is imported, then the file
    has it, and does not say that it is an example."""
    done = run(tmp_path, "import", stdin="torchrun --nproc-per-node=2 train.py\n")
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
    done = run(tmp_path, "import", name, "--save", "made.toml")
    assert done.returncode == 0, done.stderr
    cluster = load(tmp_path / "made.toml")
    assert {job: len(entry.tasks) for job, entry in cluster.jobs.items()} == tasks
    if command_line is not None:
        assert list(cluster.run.command or ()) == command_line
    made = (tmp_path / "made.toml").read_text()
    for part in said:
        assert part in done.stderr and part in made
    assert run(tmp_path, "plan", "made.toml").returncode == 0


@variants(
    ("name", "text", "said"),
    [
        ("notes.txt", "please run it on tf1 and tf2\n", "'please' is not a host"),
        ("job.yaml", "kind: Deployment\nspec: {}\n", "a Kubernetes Deployment"),
        ("job.yaml", "kind: TFJob\nspec: {tfReplicaSpecs: {PS: {replicas: 9999}}}\n", "replicas"),
        ("c.yml", "services:\n  web: {image: nginx}\n", "none is a ps, worker"),
        ("c.yml", "services:\n  web: [\n", "not valid YAML: line"),
        ("c.yml", f"services:\n  a: {'[' * 5000}\n", "not valid YAML: it is nested too deeply"),
        ("c.yml", "services:\n" + "#" * (1 << 20), "larger than 1 MiB"),
        (
            "train.py",
            "import tensorflow as tf\nprint(tf)\n",
            "a Python program in which no cluster",
        ),
        ("x", "\0\1\2", "this is not text"),
        ("", "", "Is a directory"),
    ],
    test=3,
)
def test_a_text_that_is_no_cluster(tmp_path: Path, name: str, text: str, said: str) -> None:
    """Given a text that is no cluster, when it is imported, then exit 2, nothing on stdout, and a
    sentence that says what it is."""
    if name:
        (tmp_path / name).write_text(text)
    done = run(tmp_path, "import", name or ".")
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.prove
def test_other_commands_name_the_way(tmp_path: Path) -> None:
    """Given a host file or a TFJob, when it is launched, checked or planned, then exit 2 says what
    it is and which command makes a cluster file of it; that command does."""
    (tmp_path / "hosts").write_text("tf1 slots=2\ntf2\n")
    (tmp_path / "job.yaml").write_text(TFJOB)
    for words in (["up"], ["check"], ["plan"], ["up", "--json"]):
        done = run(tmp_path, *words, "job.yaml")
        assert done.returncode == 2 and done.stdout == ""
        assert "job.yaml is not a cluster file, but a TFJob: 1 ps and 3 workers" in done.stderr
    done = run(tmp_path, "plan", "hosts")
    assert "hosts is not a cluster file, but 2 hosts, tf1, tf2, 3 slots" in done.stderr
    way = done.stderr.rpartition("convert it with tfmux ")[2].split()
    assert run(tmp_path, *way).returncode == 0
    assert len(load(tmp_path / way[-1]).jobs["worker"].tasks) == 3
    (tmp_path / "pod.yaml").write_text("kind: Pod\n")
    done = run(tmp_path, "up", "pod.yaml")
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
    done = run(tmp_path, "import", "c.yaml")
    assert done.returncode == 2 and "merged too often" in done.stderr
