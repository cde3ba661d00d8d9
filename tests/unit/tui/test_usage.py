"""Wrong usage and wrong files: exit code 2, a sentence that says what to write, nothing started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.paths import runs_home
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tui import main

Refused = Callable[..., str]


class Unused:
    """In the place of a launcher process, which is told nothing."""

    def __init__(self, *, ssh: bool) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    """Return what a command says that starts nothing, called in an empty folder."""
    monkeypatch.setattr("launcher.client.launcher_process.LauncherProcess", Unused)
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)

    def call(*words: str) -> str:
        try:
            code: object = main.main(words)
        except SystemExit as error:
            code = error.code
        said = capsys.readouterr()
        assert (code, said.out) == (2, ""), said
        assert "Traceback" not in said.err and not runs_home().exists()
        return said.err

    return call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no command"),
        (["--"], "there is no command"),
        (["-n", "0", "--", "true"], "-n 0: write a number of tasks from 1 on"),
        (["-n", "x", "--", "true"], "invalid int value"),
        (["-n", "5000", "--", "true"], "5,000 tasks are too many"),
        (["-n", "3", "-H", "localhost:2", "--", "true"], "-n 3 tasks need 3 slots"),
        (["-H", "a b", "--", "true"], "'a' is not a host"),
        (["-H", "tf1:2222,tf2:2222", "-n", "3", "--", "true"], "the hosts have 2"),
        (["-x", "TFMUX_NOT_SET", "--", "true"], "it is not set here: write -x NAME=VALUE"),
        (["--identity", "k", "--", "true"], "--identity is for hosts that are reached by SSH"),
        (["--nnodes", "2", "--", "true"], "--nnodes: write the hosts with their numbers of tasks"),
        (["--master_addr=tf1", "--", "true"], "rank 0's host and a free port are chosen"),
        (["-npernode", "2", "--", "true"], "npernode: write the hosts with their numbers"),
        (["--no-such", "--", "true"], "unrecognized arguments: --no-such"),
        (["-H", "-x", "--", "true"], "expected one argument"),
        (["-H", "tf1", "--hostfile", "x", "--", "true"], "remove one of them"),
        (["--hostfile", "nothing", "--", "true"], "No such file"),
        (["--ps", "tf1", "--", "true"], "--ps and --workers go together"),
        (["--ps", "a", "--workers", "b", "-n", "2", "--", "x"], "-n does not go with --ps"),
        (["--framework", "pytorch", "--", "true"], 'did you mean "torch"?'),
        (["--max-restarts", "3", "--", "true"], "one of torch, jax, mpi-like"),
        (["--framework", "jax", "--max-restarts", "-1", "--", "x"], "a number from 0 on"),
        (["--name", "a b", "--", "true"], "write a name of letters"),
        (["--", "echo", "{rnk}"], "unknown placeholder {rnk}: did you mean {rank}?"),
        (["--workdir", "nothing", "--", "true"], "nothing"),
        (["--workdir", "~nosuchuser/x", "--", "true"], "there is no such user"),
        (["--save", "/proc/x/y.toml", "--", "true"], "cannot be saved"),
        (["--save", f"{'x' * 300}.toml", "--", "true"], "File name too long"),
    ],
)
def test_options_of_run_that_are_wrong_or_contradict_each_other(
    refused: Refused, words: list[str], said: str
) -> None:
    assert said in refused("run", "--headless", *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--", "echo", "{rnak}"],
            "word 2 of the command: unknown placeholder {rnak}: did",
        ),
        (["--", "echo", "{port.ps.0}"], "word 2 of the command: {port.ps.0}: there is no job ps"),
        (["--name", "bad name", "--", "echo"], "--name: write a name of letters"),
        (["--workdir", "/nowhere", "--", "echo"], "--workdir: no such directory: /nowhere"),
        (["--", "A=1", "B=x y", "echo"], "A=1 is not a program: write -x A=1 -x 'B=x y' before"),
        (["--", "python3 t.py --lr 1"], "is one word: write python3 t.py --lr 1"),
        (["--", "echo a > b"], "is one word: write sh -c 'echo a > b'"),
    ],
)
def test_a_mistake_of_run_names_the_argument(refused: Refused, words: list[str], said: str) -> None:
    """There is no file whose line could be named."""
    message = refused("run", *words)
    assert said in message and "line" not in message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"tensorflow"', 'write true, false or a list of modules, such as ["torch"]'),
        ("[1]", "write the names of modules in quotes"),
        ('["torch nn"]', "write the names of modules in quotes"),
        ('["./torch.py"]', "write the names of modules in quotes"),
        ("{}", "write true, false or a list of modules"),
    ],
)
def test_what_is_imported_early_is_a_list_of_modules(
    refused: Refused, value: str, said: str
) -> None:
    """Key and line are named."""
    text = f"[start]\nwarm = {value}\n{cluster_text({'worker': 1})}"
    message = refused("plan", str(write(Path(), text)))
    assert said in message and "warm" in message


ON_SLURM = """
name = "s"
[slurm]
nodes = 2
time = "04:00:00"
partition = "gpu"
[jobs.worker]
tasks = ["node0:auto", "node1:auto"]
[run]
command = ["train"]
"""


@pytest.mark.parametrize("words", [["up", "--headless"], ["check"]], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[jobs", '[hosts.tf1]\nssh = "tf1"\n[jobs', "the hosts come from Slurm, as node0"),
        ("node1:auto", "node2:auto", "Slurm gives node0 … node1: use one of them, or ask for more"),
        ('time = "04:00:00"', "", "the time limit is missing"),
        ('time = "04:00:00"', 'time = "soon"', "write a time in quotes"),
        ("nodes = 2", "nodes = 0", "nodes"),
        ('partition = "gpu"', 'job = "1"', "nothing is asked of Slurm with job"),
        ('partition = "gpu"', 'job = "x; true"', "write the id of a job"),
    ],
)
def test_requests_to_slurm_that_contradict_themselves(
    refused: Refused, old: str, new: str, said: str, words: list[str]
) -> None:
    """Before Slurm is asked."""
    file = write(Path(), ON_SLURM.replace(old, new))
    assert said in refused(words[0], str(file), *words[1:])


@pytest.mark.parametrize(
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
)
def test_a_text_that_is_no_cluster_is_not_imported(
    refused: Refused, name: str, text: str, said: str
) -> None:
    """The sentence says what it is."""
    if name:
        Path(name).write_text(text)
    assert said in refused("import", name or ".")
