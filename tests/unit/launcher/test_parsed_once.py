"""A cluster file is parsed and checked once by whoever looks at it: large ones take a while."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import Cluster
from launcher.cluster.draft import parse
from launcher.cluster.edit import ClusterDocument
from launcher.cluster.key_lines import KeyLines
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tui import main

# A cluster file is parsed once by whoever looks at it: large ones take a while.

TEXT = cluster_text({"ps": 1, "worker": 2}, "once", workdir="")
ONCE = {"values": 1, "lines": 1}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often values, and lines of keys, were parsed."""
    count: Counter[str] = Counter()
    loads, init = tomllib.loads, KeyLines.__init__

    def counted_loads(text: str, /, **options: Any) -> dict[str, Any]:
        count["values"] += 1
        return loads(text, **options)

    def counted_init(self: KeyLines, text: str) -> None:
        count["lines"] += 1
        init(self, text)

    monkeypatch.setattr(tomllib, "loads", counted_loads)
    monkeypatch.setattr(KeyLines, "__init__", counted_init)
    yield count


@pytest.mark.parametrize(
    "text",
    [TEXT, "\ufeff" + TEXT, TEXT.replace("localhost:", "nowhere:"), TEXT + "[hosts.", ""],
    ids=["valid", "with a byte order mark", "wrong", "no TOML", "empty"],
)
def test_the_editor_parses_a_text_once(tmp_path: Path, parsed: Counter[str], text: str) -> None:
    """Given a text in the editor, when it is looked at, then document, cluster, problems and lines
    come of one parse."""
    now = parse(text, tmp_path / "once.toml")
    assert parsed == ONCE
    assert (now.document is None) == ("[hosts." in text)
    assert (now.cluster is None) == bool(now.problems)


def test_what_the_editor_reads_is_what_the_file_says(tmp_path: Path) -> None:
    """Given a file without a name, when it is looked at, then the document has no name, although
    the cluster has that of the file."""
    text = TEXT.replace('name = "once"\n', "")
    now = parse(text, tmp_path / "once.toml")
    assert now.document is not None and now.cluster is not None
    assert "name" not in now.document.data and now.cluster.name == "once"
    assert now.document.data == tomllib.loads(text)


def test_a_text_too_large_for_a_cluster_file_is_parsed_by_nobody(
    tmp_path: Path, parsed: Counter[str]
) -> None:
    """Given a key of a thousand parts, which takes long to parse, when the editor looks at it, then
    it says so without a document."""
    now = parse(".".join("a" * 1000) + " = 1\n", tmp_path / "once.toml")
    assert now.document is None and "parts" in now.problems[0].message
    assert parsed["values"] == 0


@pytest.mark.parametrize(
    ("path", "value"), [(("run", "grace"), 7), (("jobs", "ps"), None), (("run", "command"), None)]
)
def test_an_edit_parses_its_result_once(
    parsed: Counter[str], path: tuple[str, ...], value: Any
) -> None:
    """Given a document, when a value is put or removed, then the result is parsed to verify it, and
    that is the new document."""
    document = ClusterDocument(TEXT)
    parsed.clear()
    assert document.put(path, value).get(*path) == value
    assert parsed["values"] == 1


def test_a_command_parses_its_file_once(
    tmp_path: Path, parsed: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a cluster file, when `tfmux plan` prints what a launch would do, then it was parsed
    once."""
    file = tmp_path / "once.toml"
    file.write_text(TEXT)
    assert main.main(["plan", str(file)]) == 0
    assert "worker:1" in capsys.readouterr().out
    assert parsed == ONCE


@pytest.mark.parametrize("name", ['name = "once"\n', ""], ids=["named", "by its file"])
def test_a_launch_parses_its_file_once(tmp_path: Path, parsed: Counter[str], name: str) -> None:
    """Given a cluster file, when it is read and kept with its run, then it was parsed once, and the
    copy, which is called otherwise, has the cluster's name."""
    file = tmp_path / "once.toml"
    file.write_text(TEXT.replace('name = "once"\n', name))
    cluster = Cluster.from_file(file)
    folder = RunFolder.create("once-20261120-183002-7f3a", cluster.text, cluster.model)
    assert parsed == ONCE
    assert tomllib.loads(folder.cluster_file.read_text())["name"] == "once"
