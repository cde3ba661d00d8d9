"""Hosts of a cluster file that are named elsewhere: in the list that a scheduler, `mpirun` or a
person left. They become `[hosts.node0]`, `[hosts.node1]`, …"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import ClusterFileError, Problem
from ..printable import printable
from .choices import HostSource
from .file_model import Slurm, node_name
from .shorthand import MOST_BYTES, ListedHost, ShorthandError, Understood, understand


def read(kind: HostSource, path: Path | None, environ: Mapping[str, str]) -> Understood:
    """Reads the list of a source: the file at `path`, else the one that the environment names.

    Raises:
        ClusterFileError: there is none, or something in it is wrong.
    """
    given = [value for name in kind.variables if (value := environ.get(name))]
    if path is None and not given:
        names = " or ".join(kind.variables)
        raise _error("", f"write --hostfile FILE: {names} is not set here")
    return read_file(path or Path(given[0]))


def read_file(path: Path) -> Understood:
    """Reads hosts or tasks from a file.

    Raises:
        ClusterFileError: it cannot be read, or something in it is wrong.
    """
    source = printable(str(path), 200)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _error(source, getattr(error, "strerror", None) or str(error)) from None
    return parse(data.decode(errors="replace"), source)


def parse(text: str, source: str) -> Understood:
    """Understands a text of hosts or tasks; `source` names it in the error.

    Raises:
        ClusterFileError: it is none.
    """
    try:
        return understand(text)
    except ShorthandError as error:
        raise _error(source, error.message, error.line) from None


def with_hosts(text: str, source: str, hosts: Sequence[ListedHost]) -> str:
    """Returns the text of a cluster file with the tables of these hosts behind it.

    Raises:
        ClusterFileError: the file has hosts of its own.
    """
    tables = (
        f"[hosts.{node_name(number)}]\nssh = {json.dumps(str(host.login))}\n"
        for number, host in enumerate(hosts)
    )
    return with_table(text, source, "\n".join(tables))


def with_table(text: str, source: str, table: str) -> str:
    """Returns the text of a cluster file with a table that gives hosts behind it.

    Raises:
        ClusterFileError: the file has hosts of its own.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError):
        return text  # it is read again, and what is wrong is said with its line
    for own in ("hosts", Slurm.table):
        if own in raw:
            raise _error(source, f"the hosts come from --hosts-from: remove [{own}]")
    end = "" if text.endswith("\n") else "\n"
    return f"{text}{end}\n{table}"


def _error(source: str, message: str, line: int | None = None) -> ClusterFileError:
    return ClusterFileError(source or "--hosts-from", [Problem("", line, "", message)])
