"""`tfmux run`: a command on hosts, without a cluster file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster.read import load
from tests.support import command
from tests.support.budgets import variants
from tests.support.command import Up
from tests.support.patience import wait_until
from tests.support.scenario import confirmed
from tests.testbed import disk
from tests.testbed.namespaces import Testbed

RANKS = 'echo "{rank} of {world_size}, $RANK $LOCAL_RANK, $MASTER_ADDR"'


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The working directory of the commands."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def run(here: Path, *words: str) -> Up:
    return Up("run", *words, cwd=here)


def test_four_tasks_on_this_machine(here: Path) -> None:
    """Given no cluster file, when `tfmux run -n 4` runs a command, then four tasks get their ranks
    and the master's address, and the exit is 0; if the command fails, it is 1."""
    with run(here, "-n", "4", "--framework", "torch", "--json", "--", "sh", "-c", RANKS) as up:
        assert up.wait() == 0, up.transcript()
        for rank in range(4):
            assert up.log(f"worker:{rank}", f"{rank} of 4, {rank} {rank}, localhost")
    assert up.run_id.startswith("sh-") and confirmed(up)
    with run(here, "-np", "2", "--json", "sh", "-c", "exit 3") as up:
        assert up.wait() == 1, up.transcript()


ONCE = "echo $RANK at $TFMUX_ATTEMPT; sleep 0.5; test $RANK$TFMUX_ATTEMPT != 11"


@variants(("most", "code"), [("2", 0), ("0", 1)], test=1)
def test_ranks_start_again_together(here: Path, most: str, code: int) -> None:
    """Given a rank that fails once, when `--max-restarts` is 2, then all ranks start again together
    and the run is a success; when it is 0, then the run fails after one attempt."""
    words = ["-n", "3", "--framework", "torch", "--max-restarts", most, "--json", "--"]
    with run(here, *words, "sh", "-c", ONCE) as up:
        assert up.wait() == code, up.transcript()
        if most == "0":
            assert {e["attempt"] for e in up.of("run")} == {1}
            return
        for rank in range(3):
            assert up.log(f"worker:{rank}", f"{rank} at 2")
        assert up.of("end")[-1]["attempt_text"] == "attempt 2 of 3: worker:1 exit 1 on localhost"
    assert confirmed(up)


def test_variables_of_mpirun(here: Path) -> None:
    """Given `-x NAME` and `-x NAME=VALUE`, when a command is run, then its tasks have the value of
    this shell and the one that is given, braces included."""
    words = ["-x", "HOME", "-x", "RATE={0.1}", "--json", "--", "sh", "-c", 'echo "$HOME $RATE"']
    with run(here, *words) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"{os.environ['HOME']} {{0.1}}")


def test_the_file_is_kept_and_launched_again(here: Path) -> None:
    """Given `tfmux run --save FILE`, when the run has ended, then FILE holds the run and `tfmux up`
    launches it again; a second `--save` to FILE is exit 2 and changes nothing."""
    (here / "train.sh").write_text("echo trained {rank}\n".replace("{rank}", "$1"))
    words = ["--save", "made/two.toml", "-n", "2", "--", "sh", "train.sh", "{rank}"]
    with run(here, "--json", *words) as up:
        assert up.wait() == 0, up.transcript()
    path = here / "made" / "two.toml"
    assert path.read_text().startswith("#:schema ../")
    assert len(load(path).jobs["worker"].tasks) == 2
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:1", "trained 1")
    before = path.read_text()
    with run(here, *words) as up:
        assert up.wait() == 2
    assert "exists: name another file" in up.said and path.read_text() == before


def test_hosts_as_ssh_knows_them(testbed: Testbed, here: Path, tfmux_home: Path) -> None:
    """Given aliases of `ssh_config` with slots, in `-H` or in a hostfile, when a script is run on
    them, then it is copied there, and the ranks meet at the address that the alias stands for."""
    testbed.give_access(tfmux_home)
    (here / "who.sh").write_text('echo "rank $RANK, local $LOCAL_RANK, at $MASTER_ADDR"\n')
    (here / "hosts").write_text("# ours\ntf1 slots=1\ntf2 slots=4  # fast\n")
    address = testbed["tf1"].address
    for words in (["-H", "tf1,tf2:2"], ["--hostfile", "hosts", "-n", "3"]):
        words += ["--framework", "torch", "--json", "--", "sh", "who.sh"]
        with run(here, *words) as up:
            assert up.wait() == 0, up.transcript()
            assert up.log("worker:0", f"rank 0, local 0, at {address}")
            assert up.log("worker:2", f"rank 2, local 1, at {address}")
        assert confirmed(up)
    for host in (testbed["tf1"], testbed["tf2"]):
        wait_until(lambda host=host: host.leftovers() == [], "nothing is left")  # type: ignore[misc]


@pytest.mark.prove
def test_ps_and_workers(testbed: Testbed, here: Path, tfmux_home: Path) -> None:
    """Given hosts for `--ps` and `--workers`, when a serving command is run on them, then ps and
    workers are ready, and Ctrl-C ends the run with exit 130 and a confirmed receipt."""
    testbed.give_access(tfmux_home)
    script = "import os, socket, sys, time; print(os.environ['TF_CONFIG'], flush=True)\n"
    script += "s = socket.create_server(('', int(sys.argv[1])))\ntime.sleep(1000)"
    (here / "serve.py").write_text(script)
    words = ["--ps", "tf1", "--workers", "tf2,tf3", "--name", "mission", "--json", "--"]
    with run(here, *words, disk.PYTHON, "serve.py", "{port}") as up:
        for task in ("ps:0", "worker:0", "worker:1"):
            up.state(task, "ready")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert up.run_id.startswith("mission-") and confirmed(up)


def test_a_host_that_ssh_does_not_know(here: Path) -> None:
    """Given a host name that does not resolve, when `tfmux run` is called with it, then exit 3 says
    so and that nothing was started."""
    with run(here, "-H", "no-such-host.invalid", "--headless", "--", "true") as up:
        assert up.wait() == 3, up.said
    assert "no-such-host.invalid" in up.said and "does not resolve" in up.said
    assert "nothing was started" in up.said


@pytest.mark.prove
def test_aliases_of_this_machines_ports_are_not_called_so(here: Path, tfmux_home: Path) -> None:
    """Given aliases with `HostName 127.0.0.1`, as tunnels have them, when ranks are to meet there,
    then exit 2 says why they would not; a command that knows no ranks is only warned of."""
    ssh = tfmux_home / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text(
        "Host n*\n  HostName 127.0.0.1\nHost n1\n  Port 1\nHost *\n  Port 2"
    )
    done = command.run("run", "-H", "n1,n2", "--framework", "torch", "--", "true")
    assert done.returncode == 2
    said = "127.0.0.1 means another machine on n2: set the name that the other hosts use for n1"
    assert said in done.stderr
    done = command.run("run", "-H", "n1,n2", "--headless", "--", "true")
    assert done.returncode == 3 and said in done.stderr


@pytest.mark.prove
def test_more_hosts_than_open_files(here: Path, tfmux_home: Path) -> None:
    """Given sixty hosts and a limit of 80 open files, when `tfmux run` is called, then exit 3
    says what the hosts' servers answer, and nothing about the limit."""
    ssh = tfmux_home / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text("Host n*\n  HostName 127.0.0.1\n  Port 1\n")
    (here / "hosts").write_text("".join(f"n{number}\n" for number in range(60)))
    words = ["--hostfile", str(here / "hosts"), "--workdir", "", "--headless", "--", "true"]
    limited = ("sh", "-c", 'ulimit -Sn 80; exec "$@"', "sh")
    done = command.run("run", *words, prefix=limited)
    assert done.returncode == 3, done.stderr
    assert "connection refused by 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr and "Too many" not in done.stderr


@pytest.mark.prove
def test_this_machine_beside_others(testbed: Testbed, here: Path, tfmux_home: Path) -> None:
    """Given `localhost` before or after another host in `-H`, when rank 1 connects to rank 0, then
    they meet at the first host's address; what `localhost` stands for is told unless given."""
    testbed.give_access(tfmux_home)
    script = (
        "import os, socket\nplace = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
    )
    script += "if os.environ['RANK'] == '0':\n    s = socket.create_server(('', place[1]))\n"
    script += "    s.accept()\nelse:\n    while True:\n        try:\n"
    script += "            socket.create_connection(place)\n            break\n"
    script += (
        "        except ConnectionRefusedError:\n            pass\nprint('met at', place[0])\n"
    )
    (here / "meet.py").write_text(script)
    end = ["--framework", "torch", "--json", "--", "{python}", "meet.py"]
    for words, address in (
        (["-H", "localhost,tf2"], testbed.address),
        (["--address", "launcher", "-H", "tf2,localhost"], testbed["tf2"].address),
    ):
        with run(here, *words, *end) as up:
            assert up.wait() == 0, up.transcript()
            for task in ("worker:0", "worker:1"):
                assert up.log(task, f"met at {address}")
        assert confirmed(up)
        assert ("localhost is" in up.said) is ("--address" not in words)


@pytest.mark.prove
def test_braces_of_the_working_directory(tmp_path: Path) -> None:
    """Given a working directory with braces in its name, when a run there is saved and launched,
    then its task finds the directory's files: the braces are no placeholder."""
    folder = tmp_path / "exp{1}"
    folder.mkdir()
    (folder / "here").write_text("yes\n")
    for workdir in ([], ["--workdir", "."]):
        saved = tmp_path / f"f{len(workdir)}.toml"
        with run(folder, "--save", str(saved), *workdir, "--json", "--", "cat", "here") as up:
            assert up.wait() == 0, up.transcript()
            assert up.log("worker:0", "yes")
        assert load(saved).run.workdir == str(tmp_path / "exp{{1}}")


@variants(
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
        (["--address", "a", "-H", "tf1", "--", "true"], "localhost, which is not among"),
        (["--address", "a b", "-H", "localhost,tf1", "--", "true"], "blanks or quotes"),
    ],
    test=4,
)
def test_bad_usage_starts_nothing(here: Path, words: Sequence[str], said: str) -> None:
    """Given options of `tfmux run` that are wrong or contradict each other, when it is called, then
    exit 2, and stderr says what is wrong or what to write instead."""
    with run(here, "--headless", *words) as up:
        assert up.wait() == 2, up.said
    assert said in up.said
