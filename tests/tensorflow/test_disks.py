"""Checkpoints on disks that are not shared, and on full ones."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from tests.support.lazily import checkpoint, tf
from tests.support.trainer_tasks import Cluster, Tasks

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="private mounts need root and unshare",
)


def mounted(directory: pathlib.Path, options: str) -> list[str]:
    """A command prefix that gives a process a disk of its own at `directory`."""
    script = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(directory)]


@pytest.mark.soak
def test_checkpoints_are_on_the_chiefs_disk_alone(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """Whole checkpoints although each ps sees another, unwritable disk; restored from there too."""
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    for steps in (40, 80):
        flags = (f"--steps={steps}", f"--logdir={logdir}")
        cluster = Cluster(tasks, "async", *flags, ps=2, worker=1)
        for index in range(2):
            cluster.start("ps", index, prefix=mounted(logdir, "ro"))
        chief = cluster.start("worker")
        assert chief.wait() == 0
        reader = tf.train.load_checkpoint(str(logdir / f"model.ckpt-{steps}"))
        assert reader.get_tensor("hidden/weights").shape == (784, 500)
        assert reader.get_tensor("hidden/biases/average").shape == (500,)
    assert f"restored step 40 from {logdir}/model.ckpt-40" in chief.text


def test_a_full_disk_is_named(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """A disk that has room for one checkpoint: the second is an error of one line.

    It names the path and the reason, and the first checkpoint is intact.
    """
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", logdir], check=True)
    try:
        flags = ("--steps=100000", "--save-secs=1", f"--logdir={logdir}")
        cluster = Cluster(tasks, "async", *flags, ps=1, worker=1)
        cluster.start("ps")
        chief = cluster.start("worker")
        assert chief.wait() == 1
        last = chief.complaint
        assert re.fullmatch(
            rf"trainer: {logdir}/model\.ckpt-\d+: cannot save: .*[Nn]o space left.*", last
        )
        newest = tf.train.latest_checkpoint(str(logdir))
        assert checkpoint.read(newest) == ("test-run", 0)
        assert tf.train.load_checkpoint(newest).get_tensor("output/weights").shape == (500, 10)
    finally:
        subprocess.run(["umount", logdir], check=True)
