"""Hosts from lists of Open MPI and PBS, and from the shell of a Slurm job."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from tests.support.cluster_texts import SALLOC, UNLISTED_HOSTS
from tui.commands.hosts_from import read_cluster


def test_a_file_with_a_byte_order_mark_gets_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a list, and in the shell of a Slurm job."""
    on_slurm = UNLISTED_HOSTS + '[slurm]\nnodes = 2\ntime = "1"\n'
    for name, text in (("listed", UNLISTED_HOSTS), ("slurm", on_slurm)):
        (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
    (tmp_path / "hosts").write_text("tf1\ntf2\n")
    listed, hosts = tmp_path / "listed", tmp_path / "hosts"
    asked = Namespace(file=listed, hosts_from="hostfile", hostfile=hosts)
    assert set(read_cluster(asked)[0].hosts) >= {"node0", "node1"}
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'n1\\nn2\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for variable, value in SALLOC.items():
        monkeypatch.setenv(variable, value)
    cluster, _ = read_cluster(Namespace(file=tmp_path / "slurm"))
    assert cluster.slurm is not None and cluster.slurm.job == "8123"
