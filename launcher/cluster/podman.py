"""`[podman]` table of a cluster file: containers on this machine that are the cluster's hosts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from .engine_table import EngineTable, option_list, option_rule
from .fields import Key, Rule, text, wrong

HOST_NETWORK = "host"
LOOPBACK = "127.0.0.1"

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MODES = frozenset({"bridge", "none", "pasta", "private", "slirp4netns"})
_OURS = {
    "--attach": "the agents run in the background",
    "--detach": "the agents run in the background",
    "--entrypoint": "the agent is what a container runs",
    "--init": "the agent reaps",
    "--interactive": "the agents run in the background",
    "--name": "the run is found by it",
    "--net": "write network in [podman]",
    "--network": "write network in [podman]",
    "--pid": "the end of a container must be the end of its processes",
    "--pod": "containers end one by one",
    "--pull": "nothing is pulled during a launch",
    "--replace": "another run's container must stay",
    "--restart": "a run that has ended must not start again",
    "--rm": "what podman says of a container is asked after its end",
    "--rootfs": "write image in [podman], or leave it out",
    "--stop-signal": "the agents end on TERM",
    "--stop-timeout": "it is made of grace",
    "--tty": "a terminal changes bytes",
}


def _image(value: Any) -> str:
    if not _IMAGE.fullmatch(text(value)):
        raise wrong('write the name of an image, such as "docker.io/tensorflow/tensorflow:2.15.0"')
    return text(value)


def _network(value: Any) -> str:
    if not _NETWORK.fullmatch(text(value)) or value in _MODES:
        raise wrong('write "host", or the name of a network that podman network create has made')
    return text(value)


Image = Annotated[str, Rule(_image, {"type": "string", "pattern": f"^{_IMAGE.pattern}$"})]
Network = Annotated[str, Rule(_network, {"type": "string", "pattern": f"^{_NETWORK.pattern}$"})]
Option = Annotated[str, option_rule("podman run", "--volume=/data:/data:ro", _OURS)]
Options = Annotated[tuple[Option, ...], option_list("--volume=/data:/data:ro", "--cpus=2")]


class Podman(EngineTable):
    """`[podman]`: containers on this machine, the hosts `node0`, `node1`, …"""

    table = "podman"
    label = "podman"
    reached_by = "podman"
    assigns_gpus = False

    image: Annotated[
        Image | None,
        Key(
            "image of the containers, with Python 3.8 or newer in it. It must be on this machine "
            "(`podman pull`)",
            "no image: this machine's `/usr`, `/etc` and Python, read-only",
        ),
    ] = None
    network: Annotated[
        Network,
        Key(
            "`host`: all containers use this machine's network, at 127.0.0.1. Or a network of "
            "`podman network create`: each container has an address of its own"
        ),
    ] = HOST_NETWORK
    options: Annotated[
        Options,
        Key(
            'further options of `podman run`, such as `["--volume=/data:/data:ro", "--cpus=2"]`. '
            "They are passed on as they are"
        ),
    ] = ()

    @property
    def interpreter(self) -> str | None:
        return self.python or (sys.executable if self.image is None else None)

    def pending_address(self, name: str) -> str:
        return LOOPBACK if self.network == HOST_NETWORK else name

    def problems(self) -> Iterator[tuple[str, object, str]]:
        yield from super().problems()
        if any(option.partition("=")[0] == "--user" for option in self.options) and not self.image:
            message = "--user needs an image: without one the folders in a container are root's"
            yield "options", None, message
