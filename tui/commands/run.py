"""`tfmux run`: launches a command on some hosts, without a cluster file."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.cluster import generated, library
from launcher.cluster.addresses import LOCALHOST, SshDestination
from launcher.cluster.fields import nearest
from launcher.cluster.file import loads
from launcher.cluster.generated import WORKER, Request
from launcher.cluster.host_list import HostSource, ListedHost, parse_option, read
from launcher.cluster.rules import Framework
from launcher.cluster.spec import Cluster
from launcher.errors import TfmuxError
from launcher.hosts.ssh_config import read_config
from launcher.printable import printable
from tui.commands.launch import launch

MOST_TASKS = 4096


def run(arguments: argparse.Namespace) -> int:
    """Launches a command as `up` launches a file; returns the run's exit code.

    Raises:
        TfmuxError: the options do not fit, or the file they make has a problem.
    """
    return launch(lambda: make_cluster(arguments), arguments)


def make_cluster(arguments: argparse.Namespace) -> tuple[Cluster, str]:
    """Makes the cluster of the options and its file's text, which is also saved with `--save`.

    Raises:
        TfmuxError: the options do not fit, or the file they make has a problem.
    """
    command = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not command:
        raise TfmuxError("there is no command: write such as tfmux run -n 4 -- python train.py")
    save: Path | None = arguments.save
    if save is not None and save.exists():
        raise TfmuxError(f"{printable(str(save))} exists: name another file")
    jobs = _jobs(arguments)
    here = Path.cwd()
    base = here if save is None else save.absolute().parent
    workdir = arguments.workdir
    if workdir is None:
        workdir = "." if base == here else str(here)
    elif workdir:
        workdir = str(here / Path(workdir).expanduser())
    text = generated.render(
        Request(
            command=command,
            jobs=jobs,
            name=arguments.name or generated.default_name(command),
            workdir=workdir,
            framework=_framework(arguments.framework),
            addresses=asyncio.run(_addresses([h for hosts in jobs.values() for h in hosts])),
        )
    )
    if save is not None:
        text = library.with_schema_line(text, save)
    source = "tfmux run" if save is None else printable(str(save))
    cluster = loads(text, source, base, for_launch=True)
    if save is not None:
        library.write(save, text)
    return cluster, text


def _jobs(arguments: argparse.Namespace) -> Mapping[str, Sequence[ListedHost]]:
    """Reads the hosts of each job.

    Raises:
        TfmuxError: the options contradict each other, or a list is wrong.
    """
    count: int | None = arguments.n
    lists = {"-H": arguments.hosts, "--hostfile": arguments.hostfile, "-n": count}
    if arguments.ps is not None or arguments.workers is not None:
        given = [name for name, value in lists.items() if value is not None]
        if given:
            raise TfmuxError(f"{given[0]} does not go with --ps and --workers: remove it")
        if arguments.ps is None or arguments.workers is None:
            raise TfmuxError("--ps and --workers go together: write such as --ps tf1 --workers tf2")
        jobs = {"ps": arguments.ps, WORKER: arguments.workers}
        found = {job: parse_option(text, f"--{option}") for job, text, option in _options(jobs)}
    else:
        if arguments.hosts is not None and arguments.hostfile is not None:
            raise TfmuxError("-H and --hostfile: remove one of them")
        if count is not None and count < 1:
            raise TfmuxError(f"-n {count}: write a number of tasks from 1 on")
        found = {WORKER: _equal(arguments, count)}
    tasks = sum(host.slots for hosts in found.values() for host in hosts)
    if tasks > MOST_TASKS:
        raise TfmuxError(f"{tasks} tasks are too many: at most {MOST_TASKS}")
    return found


def _options(jobs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [(job, text, "ps" if job == "ps" else "workers") for job, text in jobs.items()]


def _equal(arguments: argparse.Namespace, count: int | None) -> tuple[ListedHost, ...]:
    if arguments.hosts is not None:
        hosts = parse_option(arguments.hosts, "-H")
    elif arguments.hostfile is not None:
        hosts = read(HostSource.HOSTFILE, arguments.hostfile, {})
    else:
        return (ListedHost(SshDestination(None, LOCALHOST, None), count or 1),)
    try:
        return generated.first_slots(hosts, count)
    except ValueError as error:
        raise TfmuxError(f"-n {error}") from None


def _framework(word: str | None) -> Framework:
    if word is None:
        return Framework.TENSORFLOW
    try:
        return Framework(word)
    except ValueError:
        known = ", ".join(Framework)
        hint = nearest(word, Framework, f"it is one of {known}")
        raise TfmuxError(f"--framework {printable(word, 60)}: {hint}") from None


async def _addresses(hosts: Sequence[ListedHost]) -> dict[str, str]:
    """What an alias of `ssh_config` stands for: the other hosts do not know the alias."""
    names = {host.login.host for host in hosts} - {LOCALHOST}

    async def address(name: str) -> str:
        try:
            config = await read_config(name, name, None, None)
        except TfmuxError:
            return ""  # the launch says it
        return config.get("hostname")

    found = await asyncio.gather(*map(address, sorted(names)))
    pairs = zip(sorted(names), found, strict=True)
    return {name: address for name, address in pairs if address and address != name.lower()}
