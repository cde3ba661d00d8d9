"""`prepare`: shell lines that run once for each host and content, before the host's tasks; and
variables that a launch reads."""

from __future__ import annotations

import socket
import sys
import zipfile
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError
from launcher.on_host import prepare
from launcher.on_host.prepare import content
from launcher.paths import runs_home
from launcher.store.launcher_socket import connect
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.testbed.inprocess import SshServer


def cluster(host: str, lines: list[str], more: str = "", command: list[str] | None = None) -> str:
    """One worker on `far`, and lines that prepare it."""
    words = command or list(python_task("print('trained')"))
    return cluster_text(
        {"worker": "far"},
        "prepared",
        host,
        command=words,
        workdir="work",
        prepare=lines,
        grace=2.0,
        start={"ready": {"worker": "started"}},
        more=more,
    )


def wheel(folder: Path, answer: int) -> None:
    """Packs a wheel of one module by hand."""
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(zipfile.ZipInfo("tiny.py"), f"answer = {answer}\n")


def up_to_the_end(file: Path, code: int = 0) -> list[str]:
    """Runs; the lines of the task that prepares."""
    with Up("up", str(file), "--json") as up:
        assert up.wait() == code, up.transcript()
    return [e["text"] for e in up.of("log") if e["task"] == "prepare:0"]


def test_a_venv_with_a_local_wheel(ssh_server: SshServer, tmp_path: Path) -> None:
    """The lines make an environment on the host and unpack a wheel of the workdir in it; the task
    then uses it. The second launch skips them and says so; another wheel runs them again."""
    work = tmp_path / "work"
    work.mkdir()
    wheel(work, 42)
    lines = [
        '"$TFMUX_PYTHON" -m venv --clear --without-pip ~/env',
        '"$TFMUX_PYTHON" -m zipfile -e tiny-1.0-py3-none-any.whl ~/env/lib/python*/site-packages',
    ]
    command = ["sh", "-c", '~/env/bin/python -c "import tiny; print(tiny.answer)"']
    file = write(
        tmp_path, cluster(ssh_server.host_toml("far", sys.executable), lines, command=command)
    )
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    assert [e["text"] for e in up.of("log") if e["task"] == "worker:0"] == ["42"]
    ended = up.state("prepare:0", "exited")["time"]
    assert up.state("worker:0", "starting")["time"] >= ended
    said = [e["text"] for e in up.of("log") if e["task"] == "prepare:0"]
    assert said[0] == f"+ {lines[0]}" and said[-1] == "prepare: done"
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    said = [e["text"] for e in up.of("log") if e["task"] == "prepare:0"]
    assert len(said) == 1 and "already done" in said[0]
    wheel(work, 43)
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    assert [e["text"] for e in up.of("log") if e["task"] == "worker:0"] == ["43"]


def test_a_failure_ends_the_run_with_its_last_lines(ssh_server: SshServer, tmp_path: Path) -> None:
    """Exit 1, the failed line's output on stderr, later lines not run, no task started, also
    under on_failure = "keep"; and the next launch tries again."""
    (tmp_path / "work").mkdir()
    lines = ["echo before", "echo this went wrong >&2; exit 7", "echo after"]
    more = 'on_failure = "keep"'
    file = write(tmp_path, cluster(ssh_server.host_toml("far", sys.executable), lines, more))
    for _ in range(2):
        with Up("up", str(file), "--json") as up:
            assert up.wait() == 1, up.transcript()
        assert "prepare:0 on far" in up.said and "this went wrong" in up.said
        said = [e["text"] for e in up.of("log") if e["task"] == "prepare:0"]
        assert "before" in said and "after" not in said
        assert not any(e["task"] == "worker:0" and e["attempt"] for e in up.of("task"))


@pytest.mark.prove
def test_what_writes_into_the_workdir_runs_at_each_launch(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """The workdir of a host is new at each launch: a built file would be missing in the second
    one, so the lines run again, and are told to."""
    (tmp_path / "work").mkdir()
    command = ["cat", "built"]
    text = cluster(
        ssh_server.host_toml("far", sys.executable), ["echo built > built"], command=command
    )
    file = write(tmp_path, text)
    for _ in range(2):
        said = up_to_the_end(file)
        assert "+ echo built > built" in said
        assert any("copied at each launch" in line for line in said)


def test_on_this_machine_the_workdir_stays(tmp_path: Path) -> None:
    """A local host is prepared once; the next launch skips it."""
    (tmp_path / "work").mkdir()
    text = cluster("", ["echo built >> built"]).replace("far:", "localhost:")
    file = write(tmp_path, text)
    assert up_to_the_end(file)[-1] == "prepare: done"
    assert "already done" in up_to_the_end(file)[0]
    assert (tmp_path / "work/built").read_text() == "built\n"


@pytest.mark.prove
def test_two_hosts_of_one_home_prepare_one_after_the_other(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Two names of one machine: one does the work, the other waits for it and finds it done."""
    (tmp_path / "work").mkdir()
    hosts = ssh_server.host_toml("far", sys.executable) + ssh_server.host_toml("f2", sys.executable)
    text = cluster(hosts, ["sleep 1; echo once >> ~/times"])
    text = text.replace('tasks = ["far:auto"]', 'tasks = ["far:auto", "f2:auto"]')
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    assert {e["task"] for e in up.of("task") if e["task"].startswith("prepare")} == {
        "prepare:0",
        "prepare:1",
    }
    assert (ssh_server.home / "times").read_text() == "once\n"


def test_ctrl_c_ends_a_preparation(ssh_server: SshServer, tmp_path: Path) -> None:
    """The preparation is killed like any task, and is not taken for done afterwards."""
    (tmp_path / "work").mkdir()
    lines = ["echo begun; sleep 1000"]
    file = write(tmp_path, cluster(ssh_server.host_toml("far", sys.executable), lines))
    with Up("up", str(file), "--json") as up:
        up.log("prepare:0", "begun")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert not list((ssh_server.home / ".cache/tfmux/prepared").glob("*.*[!k]"))


def test_a_job_may_not_have_the_name() -> None:
    """A job called prepare beside prepare lines is a mistake of the file."""
    text = '[jobs.prepare]\ntasks = ["localhost:1"]\ncommand = ["a"]\n[run]\nprepare = ["b"]\n'
    try:
        loads(text, "cluster.toml", Path("/"))
    except ClusterFileError as error:
        assert "jobs.prepare" in str(error)
    else:
        raise AssertionError("it was taken")


def test_lines_with_the_hosts_python_run_again_for_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines that do not name the interpreter do not run again."""
    install = ["${TFMUX_PYTHON} -m pip install numpy"]
    other = ["conda install numpy"]
    monkeypatch.setenv("TFMUX_PYTHON", "python3.11")
    before = content(install, ""), content(other, "")
    assert content(install, "") == before[0]
    monkeypatch.setenv("TFMUX_PYTHON", "python3.12")
    assert content(install, "") != before[0]
    assert content(other, "") == before[1]


def test_a_file_that_may_not_be_read_counts_by_size_and_time(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """The file may have nothing to do with the lines that name its directory."""
    monkeypatch.chdir(home)
    secret = Path("secret")
    secret.write_text("a")
    secret.chmod(0)
    before = content(["pip install ."], "")
    assert content(["pip install ."], "") == before
    secret.chmod(0o600)
    secret.write_text("other")
    secret.chmod(0)
    assert content(["pip install ."], "") != before


@pytest.mark.parametrize(
    "lines",
    [
        ["cat > out <<END", "one", "END", "true"],
        ["printf 'one", "' > out", "true"],
        ["case x in", "x) echo one > out;;", "esac"],
        ["echo \\", "one > out"],
        ["cd .", "for word in one", "do echo $word > out", "done"],
        ["echo one > out", "test -s out"],
    ],
    ids=["here-document", "quote", "case", "backslash", "loop", "whole"],
)
def test_lines_that_belong_together_run_as_they_are_written(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are one script; each is printed, and the first that fails ends it."""
    monkeypatch.chdir(home)
    assert prepare.run(lines) == 0
    assert Path("out").read_text() == "one\n"
    assert capfd.readouterr().out.splitlines() == [f"+ {line}" for line in lines]
    assert prepare.run([*lines, "exit 7", "rm out"]) == 7 and Path("out").exists()


SCRIPT = """
import os, time
print("token", os.environ.get("TOKEN_OF_MINE", "none"), os.getpid(), flush=True)
time.sleep(1000)
"""


def env_cluster(host: str = "", place: str = "localhost:auto") -> str:
    """Two workers that say what they were given."""
    return cluster_text(
        {"worker": {"tasks": [place, place], "env_from": ["TOKEN_OF_MINE"]}},
        "secrets",
        host,
        command=python_task(SCRIPT),
        workdir="",
        on_disconnect="keep",
        grace=1,
        start={"ready": {"worker": "started"}},
    )


def notes(up: Up) -> list[str]:
    """What was said once, so far."""
    return [event["note"] for event in up.of("note")]


def test_check_warns_of_a_variable_that_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning names variable, tasks and remedy, and stops nothing; with the variable set there
    is none."""
    file = str(write(tmp_path, env_cluster()))
    done = run("check", file)
    assert done.returncode == 0, done.stderr
    assert "[env-unset]" in done.stdout
    said = "TOKEN_OF_MINE (env_from) is not set in the launcher's environment: worker:0, worker:1"
    assert said in " ".join(done.stdout.split())
    monkeypatch.setenv("TOKEN_OF_MINE", "x")
    assert "env-unset" not in run("check", file).stdout


def test_up_notes_a_variable_that_is_not_set(tmp_path: Path) -> None:
    """The tasks start without it, and the run says which."""
    with Up("up", str(write(tmp_path, env_cluster())), "--json") as up:
        assert up.log("worker:0", "token")["text"].startswith("token none ")
        up.wait_for(lambda e: "TOKEN_OF_MINE" in e.get("note", ""), "the note")
        (note,) = notes(up)
        assert note == (
            "TOKEN_OF_MINE (env_from) is not set in the launcher's environment: "
            "worker:0, worker:1 start without it"
        )
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()


def test_a_restart_from_another_shell_does_not_lose_a_secret_silently(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """The launcher that had the variable is dead; the one that attaches lacks it: it says so at
    once and at the restart. No value is stored."""
    file = write(tmp_path, env_cluster(ssh_server.host_toml("far", sys.executable), "far:auto"))
    with Up("up", str(file), "--json", env={"TOKEN_OF_MINE": "swordfish"}) as up:
        for task in ("worker:0", "worker:1"):
            assert up.log(task, "token")["text"].startswith("token swordfish ")
        assert notes(up) == []
        up.kill_launcher()
    with Up("attach", up.run_id, "--json") as attached:
        attached.wait_for(
            lambda e: "worker:1 would be restarted without it" in e.get("note", ""), "the note"
        )
        attached.wait_for(
            lambda e: (e["event"], e.get("state")) == ("run", "running"), "that it is taken up"
        )
        with connect(up.run_id) as link:
            link.sendall(b'{"command": "restart", "task": "worker:0", "hard": true}\n')
            link.shutdown(socket.SHUT_WR)
            assert link.recv(1) == b"", "the launcher has heard it"
        attached.wait_for(
            lambda e: e.get("note", "").endswith("worker:0 restarts without it"), "the note"
        )
        attached.log("worker:0", "token none")
        attached.press_ctrl_c()
        assert attached.wait() == 130, attached.transcript()
    stored = [path for path in runs_home().rglob("*") if path.is_file()]
    holding = [path.name for path in stored if b"swordfish" in path.read_bytes()]
    assert set(holding) <= {"worker-0.log", "worker-1.log"}, "only what the tasks printed"
