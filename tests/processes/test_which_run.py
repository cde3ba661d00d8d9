"""Commands that mean the one active run, without a name or by its own, with real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import command
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.terminal import living

SLOWLY = """\
import time
print("here", flush=True)
while True:
    time.sleep(0.2)
    print("tick", flush=True)
"""


@pytest.mark.prove
def test_logs_stacks_attach_and_kill_mean_the_one_active_run(tmp_path: Path) -> None:
    """While there are two, they end nothing and say what there is; kill ends the last one."""
    file = write(tmp_path, one_task(SLOWLY))
    with Up("up", str(file), "--json") as first, Up("up", str(file), "--json") as second:
        for up in (first, second):
            up.log("worker:0", "here")
        for words in (["kill"], ["kill", "--force"], ["logs", "worker:0"], ["stacks"], ["attach"]):
            done = command.run(*words)
            assert done.returncode == 2 and not done.stdout, done
            assert first.run_id in done.stderr and second.run_id in done.stderr
        assert first.process.poll() is second.process.poll() is None
        assert command.run("kill", second.run_id).returncode == 0
        assert second.wait() == 130
        assert command.run("logs", "worker:0").stdout.startswith("here\n")
        assert command.run("logs").stdout.startswith("worker:0 | here\n")
        for words in ([], ["worker:0"]):
            stacks = command.run("stacks", *words)
            assert stacks.returncode == 0 and "worker:0" in stacks.stdout, stacks
        with Up("attach", "--json") as attached:
            attached.log("worker:0", "tick")
            done = command.run("kill")
            assert done.returncode == 0, done.stderr
            assert (
                f"run {first.run_id}:" in done.stdout
                and "no process is left, 1 host confirmed" in done.stdout
            )
            assert attached.wait() == 130 and attached.run_id == first.run_id
        assert first.wait() == 130
    assert not living()
    assert command.run("kill").returncode == 2


def test_the_name_means_the_launch_that_goes_on(tmp_path: Path) -> None:
    """Given one file, launched again after an end, beside an active cluster whose name begins
    alike, then all commands take the name for the launch that goes on; none ends the other."""
    ended = write(tmp_path, one_task("print('here')").replace("one", "mxnet", 1), "mxnet.toml")
    assert command.run("up", str(ended), "--headless").returncode == 0
    slow = [one_task(SLOWLY).replace("one", name, 1) for name in ("mxnet", "mxnet-large")]
    files = [write(tmp_path, text, f"{number}.toml") for number, text in enumerate(slow)]
    with Up("up", str(files[0]), "--json") as up, Up("up", str(files[1]), "--json") as other:
        for each in (up, other):
            each.log("worker:0", "here")
        done = command.run("logs", "mxnet", "worker:0")
        assert done.stdout.startswith("here\n"), done
        assert done.stderr == f"tfmux: using {up.run_id}, the active run\n"
        assert f"{up.run_id} has copied no workdir" in command.run("collect", "mxnet").stderr
        stacks = command.run("stacks", "mxnet", "worker:0")
        assert stacks.returncode == 0 and "time.sleep(0.2)" in stacks.stdout, stacks
        with Up("attach", "mxnet", "--json") as attached:
            attached.log("worker:0", "tick")
            done = command.run("kill", "mxnet")
            assert done.returncode == 0 and f"run {up.run_id}:" in done.stdout, done
            assert attached.wait() == up.wait() == 130 and attached.run_id == up.run_id
        for words in (["kill", "mxnet"], ["kill", "mx"], ["attach", "mxnet-"], ["stacks", "mxn"]):
            assert command.run(*words).returncode == 2, words
        assert other.process.poll() is None and "worker:0" in living()
        assert command.run("kill", other.run_id[:-5]).returncode == 0
        assert other.wait() == 130


def test_a_second_launch_of_a_file_names_the_first(tmp_path: Path) -> None:
    """Given a run that goes on, when its file is launched again, then that says so before it begins
    and names both commands; another file in the same directory, whose name begins alike, does not.
    """
    text = one_task("print('here')").replace("one", "two", 1)
    other = write(tmp_path, one_task("print('here')").replace("one", "two-b", 1), "two-b.toml")
    slow = one_task(SLOWLY).replace("one", "two", 1)
    with Up("up", str(write(tmp_path, slow, "two.toml")), "--json") as first:
        first.log("worker:0", "here")
        file = write(tmp_path, text, "two.toml")
        assert "is still active" not in first.said
        second = command.run("up", str(file), "--headless")
        assert second.returncode == 0, second.stderr
        run = first.run_id
        beside = f"{run}, a run of this file, is still active: this one runs beside it"
        assert f"{beside} (tfmux attach {run}, tfmux kill {run})" in second.stderr
        assert "is still active" not in command.run("up", str(other), "--headless").stderr
        assert command.run("kill", run).returncode == 0
    assert "is still active" not in command.run("up", str(file), "--headless").stderr
