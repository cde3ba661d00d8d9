"""What changes between a front end's check of a cluster file and the launch is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.paths import runs_home
from launcher.session.client import RunClient
from launcher.session.launcher_process import LauncherProcess
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.patience import PATIENCE
from tests.testbed import guard

TEXT = cluster_text({"worker": 2}, "changed", command=["sleep", "1000"], workdir="work", grace=1)


class Interrupted(LauncherProcess):
    """A launcher process for whose run something changes right before it gets its order."""

    def __init__(self, change: str, folder: Path) -> None:
        super().__init__()
        self._change = change
        self._folder = folder

    def order(self, *words: object) -> object:  # type: ignore[override]
        (copy,) = runs_home().glob("*/cluster.toml")
        match self._change:
            case "ports":
                copy.write_text(TEXT.replace("localhost:auto", "localhost:2222"))
            case "workdir":
                (self._folder / "work").rmdir()
        return super().order(*words)  # type: ignore[arg-type]


@pytest.mark.parametrize(("change", "said"), [("ports", "2222"), ("workdir", "no such directory")])
def test_a_change_before_the_order_ends_the_run(tmp_path: Path, change: str, said: str) -> None:
    """Given a file that was checked for its launch, when the run's copy gets another text, or the
    workdir goes, before the launcher process has its order, then the run ends with exit code 4 and
    that reason, and no task was started."""
    (tmp_path / "work").mkdir()
    file = write(tmp_path, TEXT)
    client = RunClient.launch(
        load(file, for_launch=True), TEXT, process=Interrupted(change, tmp_path)
    )
    assert client.wait(PATIENCE)
    end = client.snapshot()
    client.close()
    assert end.exit_code == 4 and said in end.launcher_error
    assert not guard.tasks_here()
