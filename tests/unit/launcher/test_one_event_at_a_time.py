"""Events that come while another one's instructions are carried out: they wait for its end."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster.read import loads
from launcher.run import events as ev
from launcher.run import instructions as do
from launcher.run.machine import RunStateMachine
from launcher.session.run_shell import Beginning, RunShell
from launcher.store.runs import RunFolder
from tests.support.crash import failed

TEXT = """
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[jobs.w]
tasks = ["a:1", "b:1", "b:2"]
[run]
command = ["true"]
workdir = ""
"""


class Recorder:
    """An executor that tells of a failure while it carries the first start out, as it does where
    that fits into no frame."""

    def __init__(self, shell: RunShell) -> None:
        self._shell = shell
        self.done: list[do.Instruction] = []

    def carry_out(self, what: do.Instruction) -> None:
        self.done.append(what)
        first = isinstance(what, do.StartTask) and len(self.starts) == 1
        if first and isinstance(what, do.StartTask):
            self._shell.feed(ev.TaskStarted(2.0, what.task.id, 1, 0, error="too long"))

    @property
    def starts(self) -> list[do.Instruction]:
        return [one for one in self.done if isinstance(one, do.StartTask)]


async def test_a_kill_comes_behind_all_starts_of_the_event_before(tmp_path: Path) -> None:
    """Given a start whose error ends the run, when more starts of the same event follow, then the
    kill is carried out behind them, not among them."""
    cluster = loads(TEXT, "c.toml", tmp_path)
    folder = RunFolder.create("c-20261120-183002-0001", TEXT, cluster)
    machine = RunStateMachine(cluster, folder.run_id, 1.0)
    shell = RunShell(folder, machine, Beginning(ev.Begin(1.0)), failed)
    recorder = Recorder(shell)
    shell._executor, shell._early = recorder, None  # type: ignore[assignment]
    for event in (
        ev.HostUp(1.0, "a"),
        ev.HostUp(1.0, "b"),
        ev.HostsChecked(1.0, {}),
        ev.Staged(1.0, "a"),
        ev.Staged(1.0, "b"),
    ):
        shell.feed(event)
    shell.outputs.monitor.close()
    shell.writer.close()
    kinds = [type(one) for one in recorder.done]
    assert len(recorder.starts) == 3 and kinds.count(do.KillHost) == 2
    assert kinds.index(do.KillHost) > max(
        at for at, kind in enumerate(kinds) if kind is do.StartTask
    )
