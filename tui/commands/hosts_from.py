"""Cluster files whose hosts are named elsewhere: `--hosts-from`, or the shell of a Slurm job."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from launcher.cluster.choices import HostSource
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads, read_text
from launcher.errors import TfmuxError
from launcher.printable import printable
from tui.streams import message


def refuse_other_files(path: Path) -> None:
    """Names what a file is that is no cluster file, and how it becomes one.

    Raises:
        TfmuxError: it is the file of another program, or a text without a cluster.
    """
    if path.suffix.lower() == ".toml":
        return
    from launcher.cluster.draft import imported

    if (made := imported(path)) is not None:
        name = printable(str(path))
        words = shlex.join(["tfmux", "import", str(path), "--save", made.path.name])
        raise TfmuxError(
            f"{name} is not a cluster file, but {made.sentence}: convert it with {printable(words)}"
        )


def read_cluster(
    arguments: argparse.Namespace, *, for_launch: bool = False
) -> tuple[ClusterModel, str]:
    """Reads the cluster file of a command; returns the text, too, with the hosts in it.

    Raises:
        TfmuxError: the file, or the source of the hosts, cannot be used.
    """
    path, chosen = Path(arguments.file), getattr(arguments, "hosts_from", None)
    hostfile = getattr(arguments, "hostfile", None)
    source, base = printable(str(path)), path.absolute().parent

    def parse(text: str) -> ClusterModel:
        return loads(text, source, base, for_launch=for_launch)

    refuse_other_files(path)
    text = read_text(path).removeprefix("\ufeff")
    if chosen not in (None, HostSource.SLURM):
        from launcher.cluster.host_sources import read, with_hosts

        listed = read(HostSource(chosen), hostfile, os.environ)
        if listed.notes or listed.left_out or listed.form:
            message(listed.sentence)
        text = with_hosts(text, source, listed.logins())
        return parse(text), text
    if hostfile is not None:
        raise TfmuxError("--hostfile needs --hosts-from hostfile, or openmpi")
    if chosen is None and "SLURM_JOB_ID" not in os.environ:
        return parse(text), text
    from launcher.slurm import salloc  # few need its 20 ms

    cluster = parse(text) if chosen is None or salloc.has_slurm(text) else None
    table = None if cluster is None else cluster.slurm
    job = salloc.job_of(os.environ)
    if cluster is not None and chosen is None:
        if table is None or table.login is not None or table.job is not None or not job:
            return cluster, text
        message(f"using the nodes of Slurm {job}, whose shell this is")
        if salloc.in_batch_script(os.environ):
            message(
                "write `exec tfmux up …` as the last line of the batch script: otherwise scancel "
                "and the time limit end tfmux with the script's shell, without a receipt"
            )
    text = salloc.with_job_nodes(text, source, table, os.environ)
    return parse(text), text
