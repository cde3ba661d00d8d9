"""Answers of podman as they come, and as no podman would give them; the table `[podman]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from launcher.agent.config import Rules
from launcher.cluster.file import loads
from launcher.cluster.podman import Podman
from launcher.cluster.spec import ClusterModel
from launcher.engines.commands import Output
from launcher.engines.engine import EngineError, JobState
from launcher.engines.podman import PodmanEngine
from launcher.engines.podman_run import build_root, run_command, shared_folders, volume
from launcher.engines.registry import ENGINES
from launcher.errors import ClusterFileError
from launcher.plan.plan import make_plan

FILE = """
[podman]
nodes = 2
{podman}
[jobs.worker]
tasks = ["node0:auto", "{second}:auto"]
[run]
command = ["true"]
"""
RULES = Rules(lease=60.0, grace=5.0, on_disconnect="stop")
FIRST, SECOND = "tfmux-c-1-node0", "tfmux-c-1-node1"


def cluster(podman: str = "", second: str = "node1", more: str = "") -> ClusterModel:
    text = FILE.format(podman=podman, second=second) + more
    return loads(text, "c.toml", Path("/srv"))


class Scripted:
    """Commands whose answers are given beforehand, by the first word after `podman`."""

    def __init__(self, **answers: Output | str) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
        assert argv[0] == "podman"
        self.asked.append(tuple(argv[1:]))
        answer = self.answers.get(argv[1], Output(125, "", f"Error: {argv[1]}: not scripted"))
        return Output(0, answer, "") if isinstance(answer, str) else answer

    async def connect(self) -> None:
        """There is nothing."""


def engine(commands: Scripted, podman: str = "") -> PodmanEngine:
    table = cluster(podman).podman
    assert table is not None
    return PodmanEngine(table, "c-1", RULES, commands)


def answers_of(*states: str, address: str = "") -> dict[str, Output | str]:
    """The answers of `ps` and `inspect` for these states of the first containers."""
    names = (FIRST, SECOND)[: len(states)]
    lines = [f"{n}|{state}|{address}" for n, state in zip(names, states, strict=True)]
    return {"ps": "\n".join(names) + "\n", "container": "\n".join(lines) + "\n"}


RUNS, ENDED = "running|0|0", "exited|0|0"


async def test_nodes_are_there_while_a_container_runs() -> None:
    """One that has ended is a lost host; when all have, the job is over."""
    here = ("127.0.0.1", "127.0.0.1")
    nodes = JobState("RUNNING", nodes=(FIRST, SECOND), addresses=here)
    assert await engine(Scripted(**answers_of(RUNS, RUNS))).poll("x") == nodes
    assert await engine(Scripted(**answers_of(RUNS, ENDED))).poll("x") == nodes
    assert (await engine(Scripted(**answers_of(ENDED, ENDED))).poll("x")).over
    assert (await engine(Scripted(ps="")).poll("x")).over


async def test_addresses_are_those_of_the_network() -> None:
    """Without an address a container is known by its name."""
    answers = answers_of(RUNS, RUNS, address="10.89.0.2 ")
    state = await engine(Scripted(**answers), 'network = "n1"').poll("x")
    assert state.addresses == ("10.89.0.2", "10.89.0.2")
    answers = answers_of(RUNS, RUNS, address="evil;$(x)")
    state = await engine(Scripted(**answers), 'network = "n1"').poll("x")
    assert state.addresses == ("", "")


@pytest.mark.parametrize(
    "line", ["", "x", "a|b|c|d|e", f"{FIRST}|running|x|0|", f"{FIRST}|RUN\x1b|0|0|", "|" * 9000]
)
async def test_answers_that_are_none(line: str) -> None:
    """They are no end, and no nodes."""
    commands = Scripted(ps=f"{FIRST}\n", container=f"{line}\n")
    if line:
        with pytest.raises(EngineError, match="podman inspect printed"):
            await engine(commands).poll("x")
    with pytest.raises(EngineError, match="not scripted"):
        await engine(Scripted()).poll("x")


async def test_containers_of_others_are_not_touched() -> None:
    """Whatever carries the label: only names of this run count."""
    commands = Scripted(ps="somebody\ntfmux-c-10-node0\n--all\n", rm="")
    await engine(commands).release("x")
    assert [asked[0] for asked in commands.asked] == ["ps"]
    assert await engine(commands).find() == ""


async def test_a_container_that_ends_while_podman_stops_it_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Podman refuses then, and removes it a moment later; it is not asked without end."""
    monkeypatch.setattr("launcher.engines.podman._REMOVE_PACE", 0.0)
    refused = Output(125, "", "Error: cannot remove container: it could not be stopped")

    class Hesitant(Scripted):
        refusals = 2

        async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
            said = await super().run(argv, stdin, timeout)
            self.refusals -= argv[1] == "rm"
            return refused if argv[1] == "rm" and self.refusals >= 0 else said

    commands = Hesitant(**answers_of(RUNS, ENDED), rm="")
    await engine(commands).release("x")
    assert [asked[0] for asked in commands.asked].count("rm") == 3
    commands.refusals = 100
    with pytest.raises(EngineError, match="could not be stopped"):
        await engine(commands).release("x")


async def test_podmans_word_counts_of_containers_that_it_has_shown() -> None:
    """Another user's podman has none of them, and that says nothing."""
    blind = engine(Scripted(ps=""))
    word = (await blind.words("x", [FIRST]))[FIRST]
    assert not word.gone and word.text == "podman does not know the container"
    commands = Scripted(**answers_of(ENDED, RUNS), rm="")
    asking = engine(commands)
    words = await asking.words("x", [FIRST, SECOND])
    assert words[FIRST].gone and words[FIRST].text == "podman agrees"
    assert not words[SECOND].gone and not words[SECOND].final
    commands.answers["ps"] = ""
    assert all(word.gone for word in (await asking.words("x", [FIRST, SECOND])).values())


async def test_the_kernel_is_asked_for_the_first_process() -> None:
    """A container that podman calls ended, and whose first process lives."""
    commands = Scripted(**answers_of(f"running|{os.getpid()}|0"))
    asking = engine(commands)
    await asking.poll("x")
    commands.answers.update(answers_of(ENDED))
    word = (await asking.words("x", [FIRST]))[FIRST]
    assert not word.gone and not word.final and f"process {os.getpid()} is alive" in word.text


async def test_a_container_that_cannot_be_started_takes_the_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are the error."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    refused = Output(125, "", "Error: no space left on device")
    commands = Scripted(**{**answers_of(RUNS), "run": refused, "rm": ""})
    with pytest.raises(EngineError, match="no space left"):
        await engine(commands).request()
    assert ("rm", "--force", "--time=0", "--ignore", FIRST) in commands.asked
    assert not list(tmp_path.rglob("podman-agent"))


async def test_a_container_that_ends_at_once_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as without a Python: podman has started `env`, which did not find it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    commands = Scripted(**{**answers_of("exited|0|127"), "run": "id\n", "rm": ""})
    commands.answers["logs"] = Output(0, "", "env: python3: No such file or directory\n")
    with pytest.raises(EngineError, match="node0 ended with 127: env: python3: No such file"):
        await engine(commands).request()


async def test_an_image_is_never_pulled_by_a_launch() -> None:
    """It could take hours, and ask for a password."""
    commands = Scripted(image=Output(1, "", ""))
    with pytest.raises(EngineError, match=r"not on this machine; podman pull quay\.io/x:1"):
        await engine(commands, 'image = "quay.io/x:1"').request()
    assert commands.asked == [("image", "exists", "quay.io/x:1")]


def test_the_command_line(tmp_path: Path) -> None:
    """Options of the file come before what tfmux sets; an image's own entry point is not used."""
    table = Podman(nodes=1, image="i:1", options=("--cpus=2",))
    words = run_command(table, tmp_path, ("--rm",), ("python3",))
    assert words == (
        *("run", "--rm", "--network=host", "--cpus=2", "--entrypoint=env"),
        *("--pull=never", "i:1", "python3"),
    )
    bare = run_command(Podman(nodes=1), tmp_path, (), ("python3",))
    assert bare[-3:] == ("--rootfs", f"{tmp_path}:O", "python3")
    assert "--volume=/usr:/usr:ro" in bare
    with pytest.raises(EngineError, match="there is a colon in its path"):
        volume(Path("/a:b"), "/x")


def test_the_root_of_containers_without_an_image(tmp_path: Path) -> None:
    """It has what a program needs, links of this machine among it; a second time it stays."""
    build_root(tmp_path)
    build_root(tmp_path)
    assert (tmp_path / "usr").is_dir() and (tmp_path / "tmp").stat().st_mode & 0o7777 == 0o1777
    links = [name for name in ("bin", "lib") if Path("/", name).is_symlink()]
    assert all((tmp_path / name).is_symlink() for name in links)
    folders = shared_folders()
    assert any(Path(sys.base_prefix).is_relative_to(folder) for folder in folders)
    assert not any(a != b and a.is_relative_to(b) for a in folders for b in folders)


@pytest.mark.large
def test_first_runs_make_the_root_side_by_side(tmp_path: Path) -> None:
    """None of them fails because another one is quicker."""
    together = Barrier(16)

    def build(root: Path) -> None:
        together.wait(60)
        build_root(root)

    with ThreadPoolExecutor(16) as runs:
        for number in range(50):
            list(runs.map(build, [tmp_path / str(number)] * 16))


# --- the file ---------------------------------------------------------------------------------


def problems(podman: str = "", second: str = "node1", more: str = "") -> str:
    with pytest.raises(ClusterFileError) as caught:
        cluster(podman, second, more)
    return str(caught.value)


def test_every_table_of_an_engine_has_an_engine() -> None:
    """And the registry has no other."""
    found = [table.table for table in ENGINES]
    assert sorted(found) == ["podman", "slurm"]


def test_the_nodes_are_hosts() -> None:
    """Without an image they have this machine's Python."""
    plan = make_plan(cluster(), "c-1")
    assert [(host.name, host.address, host.python) for host in plan.hosts] == [
        ("node0", "127.0.0.1", sys.executable),
        ("node1", "127.0.0.1", sys.executable),
    ]
    plan = make_plan(cluster('image = "i:1"\nnetwork = "n1"'), "c-1")
    assert [(host.address, host.python) for host in plan.hosts] == [
        ("node0", "python3"),
        ("node1", "python3"),
    ]


def test_one_source_of_hosts() -> None:
    """Not two."""
    assert "remove this one, or [podman]" in problems(more='[hosts.tf1]\nssh = "tf1"\n')
    said = problems(more='[slurm]\nnodes = 2\ntime = "10"\n')
    assert "remove one of the two tables" in said


def test_ports_in_one_network() -> None:
    """With this machine's network all containers have the same ports."""
    text = FILE.format(podman="", second="node1").replace(":auto", ":2222")
    with pytest.raises(ClusterFileError, match="write another port"):
        loads(text, "c.toml", Path("/srv"))
    text = FILE.format(podman='network = "n1"', second="node1").replace(":auto", ":2222")
    assert loads(text, "c.toml", Path("/srv")).podman is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nodes = 0", "write a number of nodes, from 1 to 1024"),
        ('image = "-x"', "write the name of an image"),
        ('network = "none"', 'write "host", or the name of a network'),
        ('network = "container:x"', 'write "host", or the name of a network'),
        ('options = "--cpus=2"', "write a list"),
        ('options = ["-v /x:/x"]', "write an option of podman run as one text"),
        ('options = ["--pid=host"]', "--pid is tfmux's own"),
        ('options = ["--rm"]', "--rm is tfmux's own"),
        ('options = ["--user=me"]', "--user needs an image"),
        ('python = "~/x/python"', "not expanded by podman"),
        ('imgae = "x"', 'did you mean "image"?'),
    ],
)
def test_bad_values_are_named(line: str, said: str) -> None:
    """With what to write instead."""
    text = FILE.format(podman=line, second="node1")
    if line.startswith("nodes"):
        text = text.replace("nodes = 2\n", "", 1)
    with pytest.raises(ClusterFileError) as caught:
        loads(text, "c.toml", Path("/srv"))
    assert said in str(caught.value)


def test_what_is_required_is_named() -> None:
    """The number of containers."""
    with pytest.raises(ClusterFileError, match="write such as nodes = 4"):
        loads('[podman]\n[jobs.w]\ntasks = ["node0:1"]\ncommand = ["x"]\n', "c", Path("/"))
    assert "podman gives node0 … node1: use one of them" in problems(second="node2")
