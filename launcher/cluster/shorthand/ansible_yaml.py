"""Inventories of Ansible in YAML: groups with hosts, their variables, and groups below them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...printable import printable
from ..addresses import AddressError
from ..values import MOST_HOSTS
from . import host_lists
from .entries import expanded
from .understood import ShorthandError, Understood
from .yaml_texts import read_yaml

_PARTS = frozenset({"hosts", "children", "vars"})
_HOSTS = re.compile(r"^[ \t]+hosts:[ \t]*(?:#.*)?$", re.MULTILINE)
_GROUP = re.compile(r"^[A-Za-z_][\w.-]*:[ \t]*(?:#.*)?$", re.MULTILINE)
_DEEPEST = 10


def find(text: str) -> Understood | None:
    """Reads an inventory; None where the text is none.

    Raises:
        ShorthandError: it is one, and a host in it cannot be taken; or PyYAML is missing.
    """
    if not _HOSTS.search(text) or not _GROUP.search(text):
        return None
    documents = [each for each in read_yaml(text) if each is not None]
    if len(documents) != 1 or not _is_groups(documents[0]):
        return None
    inventory = _Inventory()
    for name, group in documents[0].items():
        inventory.add(str(name), group or {}, {}, ())
    return inventory.understood()


def _is_groups(value: Any) -> bool:
    return isinstance(value, dict) and all(
        group is None or (isinstance(group, dict) and set(group) <= _PARTS)
        for group in value.values()
    )


class _Inventory:
    def __init__(self) -> None:
        self._variables: dict[str, dict[str, str]] = {}
        """Variables of each host's groups; the inner one wins over those around it."""
        self._own: dict[str, dict[str, str]] = {}
        """Variables of the hosts themselves, which win over those of groups."""
        self._groups: dict[str, dict[str, None]] = {}
        """The groups in which each host stands itself."""

    def add(
        self, name: str, group: Mapping[Any, Any], around: Mapping[str, str], path: tuple[str, ...]
    ) -> None:
        """Adds the hosts of a group.

        Raises:
            ShorthandError: a part of it is something else than Ansible has there.
        """
        parts = {part: group.get(part) or {} for part in _PARTS}
        if len(path) > _DEEPEST or not all(isinstance(part, dict) for part in parts.values()):
            raise ShorthandError(f"the group {printable(name, 60)} is none of Ansible")
        variables = {**around, **_texts(parts["vars"])}
        for pattern, own in parts["hosts"].items():
            for host in expanded(str(pattern)):
                self._variables.setdefault(host, {}).update(variables)
                self._own.setdefault(host, {}).update(_texts(own))
                self._groups.setdefault(host, {})[name] = None
            if len(self._groups) > MOST_HOSTS:
                raise ShorthandError(f"more than {MOST_HOSTS:,} hosts, and a run has no more")
        for child, below in parts["children"].items():
            if below is not None and not (isinstance(below, dict) and set(below) <= _PARTS):
                raise ShorthandError(f"the group {printable(str(child), 60)} is none of Ansible")
            self.add(str(child), below or {}, variables, (*path, name))

    def understood(self) -> Understood | None:
        """The hosts; jobs where each host stands in a group that is called after one."""
        lines = []
        for host, groups in self._groups.items():
            roles = [group for group in groups if host_lists.job_of(group)]
            for group in roles or [next(iter(groups))]:
                lines.append((host, self._variables[host] | self._own[host], group))
        try:
            return host_lists.of_inventory(lines)
        except AddressError as error:
            raise ShorthandError(str(error)) from None


def _texts(value: Any) -> dict[str, str]:
    """The variables that are text or numbers."""
    if not isinstance(value, dict):
        return {}
    return {
        str(key): str(each)
        for key, each in value.items()
        if isinstance(each, str | int) and not isinstance(each, bool)
    }
