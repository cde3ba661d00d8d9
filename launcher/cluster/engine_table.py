"""Base of the tables that ask an engine for the cluster's hosts: `[slurm]`, `[podman]`.

The nodes are called `node0`, `node1`, … in the file. Until the engine has given them they are
hosts that nothing reaches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from .addresses import SshDestination
from .fields import Key, Nodes, Python, Rule, text, wrong
from .table import Table

PENDING = ("false",)
"""Command in place of the one that reaches a node, before there is a node: it only fails."""

_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL)


class EngineTable(Table):
    """Table of an engine: how many nodes, and what every engine must know of them."""

    table: ClassVar[str]
    """Its name in the file."""
    label: ClassVar[str]
    """The engine's name for people."""
    reached_by: ClassVar[str]
    """Program that starts processes on a node; it expands no `~`."""
    assigns_gpus: ClassVar[bool] = True
    """It says which GPUs a node has; otherwise they are those that the host reports."""

    nodes: Annotated[
        Nodes, Key("number of nodes. The hosts of the file are then `node0`, `node1`, …")
    ]
    python: Annotated[
        Python | None,
        Key("interpreter on the nodes, for `{python}` and the agents", "`python3`"),
    ] = None

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes as hosts of the cluster file."""
        return tuple(map(node_name, range(self.nodes)))

    @property
    def span(self) -> str:
        """First and last node as people write them: `node0 … node3`."""
        first, last = node_name(0), node_name(self.nodes - 1)
        return first if self.nodes == 1 else f"{first} … {last}"

    @property
    def interpreter(self) -> str | None:
        """`python` of the nodes as hosts."""
        return self.python

    @property
    def relay(self) -> SshDestination | None:
        """The machine where the commands run that reach the nodes; None: this one."""
        return None

    @property
    def node_gpus(self) -> int | None:
        """GPUs of a node; None: what the host reports."""
        return None

    def pending_address(self, name: str) -> str:
        """Address, for other nodes, of a node that the engine has not given yet."""
        return name

    def problems(self) -> Iterator[tuple[str, object, str]]:
        """Contradictions between values: key, value and what to write."""
        if self.python is not None and self.python.startswith("~"):
            message = f'"~/" is not expanded by {self.reached_by}: write an absolute path'
            yield "python", self.python, message

    @classmethod
    def missing(cls, key: str) -> str:
        """Advice for a required key that is missing."""
        return {"nodes": "the number of nodes is missing: write such as nodes = 4"}[key]


def option_rule(program: str, example: str, ours: Mapping[str, str]) -> Rule:
    """Rule of an option that is passed on to a program as it is; `ours` are those that tfmux sets
    itself, with the reason."""

    def option(value: Any) -> str:
        given = text(value)
        if not _OPTION.fullmatch(given) or not given.isprintable():
            raise wrong(f'write an option of {program} as one text, such as "{example}"')
        name = given.partition("=")[0]
        if why := ours.get(name):
            raise wrong(f"{name} is tfmux's own ({why}): remove it")
        return given

    return Rule(option, {"type": "string", "pattern": "^--[a-z]"})


def option_list(*examples: str) -> BeforeValidator:
    """Check that a value is a list at all."""

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            words = ", ".join(f'"{example}"' for example in examples)
            raise wrong(f"write a list, such as [{words}]")
        return tuple(value)

    return BeforeValidator(check)


def node_name(number: int) -> str:
    """Name of a node as a host of the cluster file."""
    return f"node{number}"
