"""`tfmux import`: a cluster file of what a text says, such as a TF_CONFIG, a host file or a command
line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher.cluster import library
from launcher.cluster.generated import EXAMPLE, NO_COMMAND, render_import
from launcher.cluster.read import loads
from launcher.cluster.saved_file import write
from launcher.cluster.shorthand import MOST_BYTES, ShorthandError, understand_file
from launcher.errors import TfmuxError
from launcher.printable import pictured, printable
from tui import streams
from tui.exits import Exit
from tui.streams import message


def import_cluster(arguments: argparse.Namespace) -> int:
    """Prints the cluster file of a text, or saves it; says on stderr what was understood.

    Raises:
        TfmuxError: the text is no cluster, or the file cannot be read or saved.
    """
    file: Path = arguments.file
    save: Path | None = arguments.save
    if save is not None and os.path.exists(save):
        raise TfmuxError(f"{printable(str(save))} exists: name another file")
    piped = str(file) == "-"
    text = _text(None if piped else file)
    source = "stdin" if piped else printable(str(file), 200)
    try:
        understood = understand_file(text, "" if piped else file.name)
    except ShorthandError as error:
        raise TfmuxError(f"{source}: {error}") from None
    stem = save.stem if save is not None else understood.name or ("cluster" if piped else file.stem)
    rendered = render_import(understood, library.plain_name(stem))
    target = save if save is not None else Path("cluster.toml")
    loads(rendered, source, target.absolute().parent)  # a text may name what no cluster can have
    example = f"; {NO_COMMAND} ({' '.join(EXAMPLE)})" if understood.lacks_command else ""
    message(f"{source}: {understood.sentence}{example}")
    if save is None:
        screen = sys.stdout.isatty()
        streams.write([pictured(rendered) if screen else rendered])
        return Exit.SUCCESS
    write(save, library.with_schema_line(rendered, save))
    return Exit.SUCCESS


def _text(file: Path | None) -> str:
    """The text of a file, or of stdin.

    Raises:
        TfmuxError: it cannot be read, or is too large.
    """
    shown = "stdin" if file is None else printable(str(file), 200)
    try:
        if file is None:
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            # A named pipe without a writer would block the open for ever.
            with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
                os.set_blocking(opened.fileno(), True)  # bytes of a pipe may come later
                data = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TfmuxError(f"{shown} cannot be read: {reason}") from None
    if len(data) > MOST_BYTES:
        raise TfmuxError(f"{shown} is larger than 1 MiB: this is not a cluster")
    return data.decode(errors="replace")
