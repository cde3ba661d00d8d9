"""Answers of Slurm as they come, and as no Slurm would give them; the script, and the table."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from launcher.hosts.frames import Rules
from launcher.slurm.login import LocalCommands, NoAnswerError, SlurmError
from launcher.slurm.script import batch_script
from tests.support.cluster_texts import cluster_on_slurm as cluster

RULES = Rules(lease=60.0, grace=5.0, on_disconnect="stop")


async def test_commands_get_no_secret_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch stores its environment with the job."""
    monkeypatch.setenv("TOKEN", "hunter2")
    monkeypatch.setenv("TFMUX_RESUME", "x")
    output = await LocalCommands(["TOKEN"]).run(["sh", "-c", "env; cat; exit 3"], "in")
    assert output.status == 3 and output.stdout.endswith("in")
    assert "hunter2" not in output.stdout and "TFMUX_" not in output.stdout
    with pytest.raises(SlurmError, match="did not answer within"):
        await LocalCommands().run(["sleep", "1000"], timeout=0.2)
    with pytest.raises(SlurmError, match="no-such-program: No such file"):
        await LocalCommands().run(["no-such-program"])
    flood = await LocalCommands().run(["sh", "-c", "yes | head -c 9000000; yes >&2 & kill $!"])
    assert len(flood.stdout) <= 1 << 20


@pytest.mark.parametrize("script", ["echo $!; sleep 1000", "echo 4711 $!"], ids=["hangs", "ends"])
async def test_who_holds_the_output_of_a_command_open_holds_up_nobody(
    tmp_path: Path, script: str
) -> None:
    """A site's wrapper leaves something behind, out of its session: a command that hangs ends in
    its time, and one that has ended is believed."""
    pid = tmp_path / "pid"
    argv = ["sh", "-c", f"setsid sleep 1000 & echo $! > {pid}; {script}"]
    try:
        if "4711" in script:
            output = await LocalCommands().run(argv)
            assert output.status == 0 and output.stdout.startswith("4711 ")
        else:
            with pytest.raises(NoAnswerError):
                await LocalCommands().run(argv, timeout=3.0)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_script_is_a_shell_script_without_secrets() -> None:
    """A shell reads all of it, and it has what the file says."""
    table = cluster('partition = "gpu"\ngpus = 2\npython = "/opt/x y/python"').slurm
    assert table is not None
    script = batch_script(table, "c-1", RULES)
    assert subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0
    assert "'/opt/x y/python'" in script
    assert len(script) < 200_000
