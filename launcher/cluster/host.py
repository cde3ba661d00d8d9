"""`[hosts.NAME]` tables of a cluster file: the machines that run tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict
from pydantic import Field as field

from .fields import Address, Destination, Env, Gpus, Jump, Key, Python, Via, Words

_AS_SSH = "as `ssh` does"


class Host(BaseModel):
    """`[hosts.NAME]`: a machine that runs tasks. `localhost` is this machine and has no `ssh`.

    A host is reached by `ssh` or by `via`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    ssh: Annotated[
        Destination | None,
        Key(
            "`user@host:port`, `host`, or an alias of `~/.ssh/config`. "
            "IPv6 is written `user@[fd00::1]:22`; every host except `localhost` needs it, or `via`",
        ),
    ] = None
    address: Annotated[
        Address | None,
        Key(
            "name or IP address that the *other* hosts use for it, without a port. It is in the "
            "cluster spec",
            "the SSH host name",
        ),
    ] = None
    python: Annotated[
        Python | None,
        Key(
            "interpreter for `{python}` and for tfmux's agent. Python 3.8 or newer; the default "
            "on this machine is the one that runs tfmux",
            "`python3`",
        ),
    ] = None
    gpus: Annotated[Gpus | None, Key("number of GPUs for this cluster", "as reported")] = None
    identity: Annotated[
        Words | None,
        Key(
            "file with the private key to log in with. "
            "The default is `~/.ssh/config`, the agent, the usual keys",
            _AS_SSH,
        ),
    ] = None
    jump: Annotated[
        Jump | None,
        Key(
            "`user@host:port` of a host to go through. Several with commas, the first one first",
            _AS_SSH,
        ),
    ] = None
    known_hosts: Annotated[
        Words | None,
        Key(
            "file with the host's key. "
            "The default is `~/.ssh/known_hosts` and the keys accepted in tfmux",
            _AS_SSH,
        ),
    ] = None
    via: Annotated[
        Via | None,
        Key(
            'command that reaches the host instead of `ssh`, such as `["podman", "exec", "-i", '
            '"tf1"]`. `address` is required with it; see `docs/hosts.md`'
        ),
    ] = None
    env: Annotated[Env, Key("variables for its tasks")] = field(default_factory=dict)
