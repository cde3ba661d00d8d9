"""Cluster files that are cut, hostile, odd, unreadable or huge."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launcher.cluster.read import load, loads
from launcher.errors import ClusterFileError
from tests.support.cluster_texts import problems


def test_a_large_file_is_read_and_a_huge_one_refused(tmp_path: Path) -> None:
    """500 tasks with 10,000-character values are read while one waits; 17 MB are not."""
    tasks = ", ".join(f'"h{n}:2222"' for n in range(500))
    hosts = "".join(f'[hosts.h{n}]\nssh = "h{n}"\nenv.A = "{"x" * 10_000}"\n' for n in range(500))
    text = f'[run]\ncommand = ["{"y" * 10_000}"]\n{hosts}[jobs.worker]\ntasks = [{tasks}]\n'
    began = time.process_time()
    assert len(loads(text, "c", Path("/")).jobs["worker"].tasks) == 500
    assert len(problems(text.replace('"h', '"g'))) == 101
    assert time.process_time() - began < 60  # a blow-up, not a measurement: it takes about a second
    file = tmp_path / "c.toml"
    file.write_bytes(b"#" * 17_000_000)
    with pytest.raises(ClusterFileError, match="16 MiB"):
        load(file)
