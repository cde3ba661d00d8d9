"""`tfmux export`: prints a cluster for Docker Compose or Slurm."""

from __future__ import annotations

import argparse

from launcher.cluster.file import load
from launcher.cluster.library import with_schema_line
from launcher.errors import TfmuxError
from launcher.export import compose, slurm
from tui import stdout
from tui.exits import Exit


def export(arguments: argparse.Namespace) -> int:
    """Prints the cluster for an engine; with `--output`, writes it and what goes with it there.

    Raises:
        TfmuxError: the engine cannot express the cluster, or a file cannot be written.
    """
    file, output = arguments.file, arguments.output
    cluster = load(file)
    if arguments.engine == "slurm":
        files = {"job.sbatch": slurm.script(cluster)}
    else:
        files = {"compose.yaml": compose.compose(cluster, gpus=not arguments.no_gpus)}
    if output is None:
        stdout.write([next(iter(files.values()))])
        return Exit.SUCCESS
    if arguments.engine == "compose":
        text = file.read_text(encoding="utf-8-sig")
        text = compose.cluster_file(cluster, text, output)
        files["cluster.toml"] = with_schema_line(text, output / "cluster.toml")
        files["README.md"] = compose.guide(cluster)
    taken = [name for name in files if (output / name).exists()]
    if taken:
        raise TfmuxError(f"{output} already has {', '.join(taken)}: name another folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            # Names of files on this machine may be no UTF-8.
            (output / name).write_text(text, encoding="utf-8", errors="surrogateescape")
            print(output / name)
    except OSError as error:
        raise TfmuxError(f"{error.filename}: {error.strerror}") from error
    return Exit.SUCCESS
