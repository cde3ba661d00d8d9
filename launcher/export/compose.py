"""Compose file with a container for each host of a cluster: an SSH server and its GPUs.

The Compose file is self-contained (the image is described in it) except for one public key that
must lie beside it. The cluster file that goes with it is the original one with the containers as
hosts; comments and order are kept.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from os.path import relpath
from pathlib import Path
from typing import Any

import tomlkit
import yaml
from tomlkit import TOMLDocument
from tomlkit.items import Table

from ..cluster.addresses import LOCALHOST, join
from ..cluster.host import SSH_OPTIONS
from ..cluster.spec import DEFAULT_LOGDIR, ClusterModel

FIRST_PORT = 2201
KEY = "id_ed25519"
PYTHON = "/usr/local/bin/python3"
_AUTHORIZED = "/etc/tfmux/authorized_keys"

_HEAD = """\
# The hosts of the cluster {name!r} as containers, each with an SSH server{gpus}.
# Beside this file there must be a public key, {key}.pub:
#     ssh-keygen -t ed25519 -N "" -f {key}
#     docker compose up --build --wait
"""


def compose(cluster: ClusterModel, *, gpus: bool = True) -> str:
    """Renders the Compose file; without `gpus` the containers get none."""
    some = gpus and any(host.gpus for host in cluster.hosts.values())
    head = _HEAD.format(name=cluster.name, gpus=" and its GPUs" if some else "", key=KEY)
    return head + _dumped(model(cluster, gpus=gpus))


def model(cluster: ClusterModel, *, gpus: bool = True) -> dict[str, Any]:
    """Builds the Compose file's content."""
    cuda = gpus and any(host.gpus for host in cluster.hosts.values())
    services: dict[str, Any] = {}
    next_gpu = 0
    for name, (service, port) in containers(cluster).items():
        services[service] = {
            "image": "tfmux-host",
            "build": {"dockerfile_inline": _dockerfile(cuda)},
            "hostname": service,
            "init": True,
            "ports": [f"127.0.0.1:{port}:22"],
            "configs": [{"source": "authorized_keys", "target": _AUTHORIZED}],
            "healthcheck": {
                "test": ["CMD", PYTHON, "-c", _GREETING],
                "interval": "2s",
                "timeout": "5s",
                "retries": 15,
            },
        }
        entry = cluster.hosts.get(name)
        if gpus and entry is not None and entry.gpus:
            # Not `count`: Docker would give every service the same first GPUs.
            ids = [str(number) for number in range(next_gpu, next_gpu + entry.gpus)]
            next_gpu += entry.gpus
            device = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
            reserved = {"reservations": {"devices": [device]}}
            services[service]["deploy"] = {"resources": reserved}
    return {
        "name": re.sub(r"[^a-z0-9_-]", "-", cluster.name.lower()).lstrip("-_") or "cluster",
        "services": services,
        "configs": {"authorized_keys": {"file": f"./{KEY}.pub"}},
    }


def containers(cluster: ClusterModel) -> dict[str, tuple[str, int]]:
    """Maps each host that has tasks to its service and to the service's SSH port here."""
    used = dict.fromkeys(place.host for job in cluster.jobs.values() for place in job.tasks)
    found: dict[str, tuple[str, int]] = {}
    taken: set[str] = set()
    for port, host in enumerate(used, FIRST_PORT):
        base = "node" if host == LOCALHOST else re.sub(r"[^a-z0-9-]", "-", host.lower()).strip("-")
        name, number = base or "node", 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        found[host] = (name, port)
    return found


def cluster_file(cluster: ClusterModel, text: str, folder: Path) -> str:
    """Rewrites the cluster file `text` for the containers; it will be written into `folder`."""
    document = tomlkit.parse(text)
    names = containers(cluster)
    document.pop("slurm", None)
    document.pop("podman", None)
    for name, job in _table(document, "jobs").items():
        job["tasks"] = [join(names[at.host][0], at.port) for at in cluster.jobs[name].tasks]
    if "defaults" in document:
        common = _table(_table(document, "defaults"), "host")
        for key in (*SSH_OPTIONS, "python"):
            common.pop(key, None)
    hosts = _table(document, "hosts")
    entries = dict(hosts.items())  # a service may be called like another host
    for host, (service, port) in names.items():
        entry = entries.get(host, tomlkit.table())
        for key in ("user", "jump", "known_hosts", "via"):
            if key in entry:
                del entry[key]
        entry["ssh"] = f"root@127.0.0.1:{port}"
        entry["identity"] = KEY
        entry["address"] = service
        entry["python"] = PYTHON
        if cluster.slurm is not None and cluster.slurm.gpus:
            entry["gpus"] = cluster.slurm.gpus
        hosts[service] = entry
    services = {service for service, _ in names.values()}
    for host in [name for name in hosts if name not in services]:
        del hosts[host]
    for hook in document.get("hooks", {}).values():
        if "/" in hook[0]:  # any other is found on PATH
            moved = _moved(hook[0], cluster, folder)
            hook[0] = moved if "/" in moved else f"./{moved}"
    run = _table(document, "run")
    _relocate(run, cluster, folder)
    for job in _table(document, "jobs").values():
        _relocate(job, cluster, folder, workdir=False)
    if not cluster.run.logdir.startswith(("/", "~")):
        run["logdir"] = DEFAULT_LOGDIR
    return tomlkit.dumps(document)


def guide(cluster: ClusterModel) -> str:
    """Renders the instructions for the files, as Markdown."""
    lines = "\n".join(f"| {name} | {port} |" for name, port in containers(cluster).values())
    return f"""\
# The cluster {cluster.name!r} in containers

```
ssh-keygen -t ed25519 -N "" -f {KEY}           # once: the key that tfmux logs in with
docker compose up --build --wait               # the hosts; the first time builds their image
tfmux check cluster.toml --accept-new          # trusts their host keys, and looks at everything
tfmux up cluster.toml
docker compose down                            # the hosts are gone, and what was on them
```

| host | its SSH port on 127.0.0.1 |
| --- | --- |
{lines}

GPUs are reserved through the NVIDIA container toolkit, by number: each host has its own, in the
order of the cluster file. On a machine with fewer, share them under `device_ids`; on one without,
export with `--no-gpus`.
"""


_GREETING = "import socket; socket.create_connection(('127.0.0.1', 22), 2).recv(4)"


def _dockerfile(cuda: bool) -> str:
    """The image of all hosts: this machine's TensorFlow version and sshd. Its host key is made when
    it is built, so a recreated container keeps the key that was trusted."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    extra = "[and-cuda]" if cuda else ""
    return f"""\
FROM python:{python}-slim
RUN apt-get update \\
 && apt-get install -y --no-install-recommends openssh-server \\
 && rm -rf /var/lib/apt/lists/* && mkdir -p /run/sshd && ssh-keygen -A
RUN pip install --no-cache-dir "tensorflow{extra}=={_version("tensorflow", "2.21.0")}" \\
 "tensorboard=={_version("tensorboard", "2.21.0")}" "setuptools<81"
CMD ["sh", "-c", "install -D -m 600 {_AUTHORIZED} /root/.ssh/authorized_keys \\
 && exec /usr/sbin/sshd -D -e"]
"""


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, and texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _block(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _block)


def _dumped(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def _version(package: str, default: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return default


def _relocate(table: Any, cluster: ClusterModel, folder: Path, *, workdir: bool = True) -> None:
    """Rewrites local paths for a file that lies in another folder."""
    if workdir and cluster.run.workdir:
        table["workdir"] = _moved(cluster.run.workdir, cluster, folder)
    if "data" in table:
        table["data"] = [_moved(str(path), cluster, folder) for path in table["data"]]


def _moved(path: str, cluster: ClusterModel, folder: Path) -> str:
    """A local path of the cluster file as a file in `folder` must have it."""
    absolute = path.startswith(("/", "~"))
    return path if absolute else relpath(cluster.base / path, folder.absolute())


def _table(document: TOMLDocument | Table, name: str) -> Table:
    if name not in document:
        document[name] = tomlkit.table(is_super_table=True)
    table: Any = document[name]
    found: Table = table
    return found
