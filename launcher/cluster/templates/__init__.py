"""Templates of cluster files, one for each common way to train.

Each is a cluster file with words in capitals: `HOSTS` stands for the tables of the user's hosts,
`"FIRST:2222"`, `"REST:2222"`, `"LAST:2222"` and `"ALL:2222"` for tasks on them, `"NAME"` for the
cluster's name and `"FOLDER"` for the directory of the user's script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from ...frozen import frozen
from ..addresses import LOCALHOST, TaskAddress

_WORD = re.compile(r'"(NAME|FOLDER)"|# (HOSTS)\n\n|"(?:(FIRST|REST|LAST|ALL):(2222|auto))"')
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@frozen
class Template:
    """One template; `remote` templates need hosts."""

    key: str
    title: str
    about: str
    remote: bool
    text: str
    """The file, without its first line, which has title and `about`."""

    @classmethod
    def read(cls, key: str) -> Template:
        """Reads the file of a template."""
        first, _, text = (files(__name__) / f"{key}.toml").read_text("utf-8").partition("\n")
        title, _, about = first.removeprefix("# ").partition(": ")
        return cls(key, title, about, "# HOSTS\n" in text, text)


TEMPLATES = tuple(
    map(
        Template.read,
        "one-machine ps-workers tensorflow-1 ps-strategy all-reduce keras-fit any-script jax slurm "
        "mpi-like environment".split(),
    )
)
ONE_MACHINE, PS_WORKERS, *_, ANY_SCRIPT, _JAX, SLURM, MPI_LIKE, ENVIRONMENT = TEMPLATES


def render(template: Template, name: str, hosts: Mapping[str, str], folder: Path) -> str:
    """Renders the text of a new cluster file.

    `hosts` maps names to SSH destinations; without any, the tasks run on this machine. `folder` is
    the directory of the user's script.
    """
    names = list(hosts) or [LOCALHOST]
    chosen = {
        "FIRST": names[:1],
        "REST": names[1:] or names * 2,
        "LAST": names[-1:],
        "ALL": names,
    }
    used: set[str] = set()

    def task(host: str, port: str) -> str:
        fixed = port != "auto" and host not in used and host != LOCALHOST
        used.add(host)
        return json.dumps(str(TaskAddress(host, int(port) if fixed else None)))

    def written(word: re.Match[str]) -> str:
        if word[1]:
            value = name if word[1] == "NAME" else str(folder)
            return json.dumps(value, ensure_ascii=False)
        if word[2]:
            return "".join(map(_host, hosts, hosts.values()))
        return ", ".join(task(host, word[4]) for host in chosen[word[3]])

    return f"# {template.about}\n{_WORD.sub(written, template.text)}"


def _host(name: str, destination: str) -> str:
    key = name if _PLAIN.fullmatch(name) else json.dumps(name)
    return f"[hosts.{key}]\nssh = {json.dumps(destination)}\n\n"
