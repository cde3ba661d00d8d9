"""Commands without a run's name, with real runs: one, two, and one again."""

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
