"""`[hosts.NAME]` tables of a cluster file, the machines that run tasks; and `[defaults.host]`, what
they have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as field

from .fields import (
    Address,
    Destination,
    Env,
    Gpus,
    Jump,
    Key,
    Python,
    Text,
    User,
    Via,
    Words,
    one_of,
)
from .rules import Shell
from .table import Table

_AS_SSH = "as `ssh` does"
_AS_RUN = "as in `[run]`"
SSH_OPTIONS = ("user", "identity", "jump", "known_hosts")
"""Keys that only a host with `ssh` has."""


class _Place(Table):
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


class HostDefaults(Table):
    """`[defaults.host]`: values for every `[hosts.NAME]` that has none of its own."""

    python: Annotated[
        Python | None,
        Key(
            "interpreter for `{python}` and for tfmux's agent. Python 3.8 or newer; the default "
            "on this machine is the one that runs tfmux",
            "`python3`",
        ),
    ] = None
    gpus: Annotated[Gpus | None, Key("number of GPUs for this cluster", "as reported")] = None
    user: Annotated[User | None, Key("account to log in as, where `ssh` names none", _AS_SSH)] = (
        None
    )
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
    setup: Annotated[
        Text | None,
        Key("shell lines before each of its tasks. A job's own `setup` wins", _AS_RUN),
    ] = None
    shell: Annotated[
        Annotated[Shell, one_of(Shell)] | None,
        Key("shell through which its tasks are started. A job's own `shell` wins", _AS_RUN),
    ] = None
    env: Annotated[Env, Key("variables for its tasks")] = field(default_factory=dict)


class Host(HostDefaults, _Place):
    """`[hosts.NAME]`: a machine that runs tasks. `localhost` is this machine and has no `ssh`.

    A host is reached by `ssh` or by `via`.
    """

    via: Annotated[
        Via | None,
        Key(
            'command that reaches the host instead of `ssh`, such as `["podman", "exec", "-i", '
            '"tf1"]`. `address` is required with it; see `docs/hosts.md`'
        ),
    ] = None

    def with_defaults(self, defaults: HostDefaults) -> Host:
        """Returns a copy with the defaults for what it does not say itself; `env` is merged."""
        given = {
            key: value
            for key, value in defaults
            if value is not None and getattr(self, key) is None
            if self.ssh is not None or key not in SSH_OPTIONS
        }
        return self.model_copy(update=given | {"env": {**defaults.env, **self.env}})


class Defaults(Table):
    """`[defaults]`: values that tables of the same kind have in common."""

    host: HostDefaults = field(default_factory=HostDefaults)
