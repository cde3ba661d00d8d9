"""Editing a cluster file as a text: one value changes, comments and order stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.edit import ClusterDocument
from launcher.cluster.read import loads
from tests.support.budgets import examples
from tests.support.cluster_strategies import cluster_tables

BASE = Path("/srv/project")


def keys(value: Any) -> Any:
    """All keys in their order."""
    return [(k, keys(v)) for k, v in value.items()] if isinstance(value, dict) else None


@given(cluster_tables())
@examples(10)
def test_any_valid_cluster_survives_file_model_file(tables: dict[str, Any]) -> None:
    """What the model says, put into the file value by value, reads as the same model."""
    text = ClusterDocument(tomlkit.dumps(tables))
    cluster = loads(text.text, "cluster.toml", BASE)
    said = cluster.model_dump(mode="json", exclude_none=True)
    fresh = ClusterDocument("# made by hand\n")
    for table in ("hosts", "jobs"):
        for name, entry in said.pop(table).items():
            for key, value in entry.items():
                fresh = fresh.put((table, name, key), value)
    fresh = fresh.put(("name",), said.pop("name"))
    for table, entry in said.items():
        for key, value in entry.items():
            fresh = fresh.put((table, key), value)
    assert loads(fresh.text, "cluster.toml", BASE) == cluster
    assert fresh.text.startswith("# made by hand")


@given(cluster_tables(), st.data())
@examples(30)
def test_edits_keep_comments_and_order(tables: dict[str, Any], data: st.DataObject) -> None:
    """With a comment on every line, any value is changed: each comment stays, and so does the
    order of all keys."""
    lines = tomlkit.dumps(tables).split("\n")
    if any('"""' in line or "'''" in line for line in lines):
        return
    text = "\n".join(f"{line}  # c{i}" for i, line in enumerate(lines))
    before = ClusterDocument(text)
    path: list[str] = []
    value: Any = before.data
    while isinstance(value, dict) and value:
        path.append(data.draw(st.sampled_from(sorted(value))))
        value = value[path[-1]]
    if isinstance(value, dict):
        return
    if isinstance(value, list):
        words = st.lists(st.text(max_size=8).filter(lambda t: "\0" not in t), max_size=4)
        new: Any = data.draw(words)
    else:
        new = data.draw(st.one_of(st.text(max_size=8), st.integers(0, 99), st.booleans()))
    after = before.put(tuple(path), new)
    assert after.get(*path) == new
    assert keys(after.data) == keys(before.data)
    kept = [f"# c{i}" for i in range(len(lines))]
    assert [c for c in kept if c not in after.text] == []
