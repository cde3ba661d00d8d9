"""Folders of runs: made whole, and what is left of a launch that never began."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError, TfmuxError
from launcher.paths import runs_home
from launcher.store.runs import RunFolder

TEXT = 'name = "x"\n[jobs.worker]\ntasks = ["localhost:1"]\n[run]\ncommand = ["true"]\n'


def names() -> list[str]:
    return sorted(os.listdir(runs_home()))


def half(name: str, files: dict[str, str], *, old: bool) -> Path:
    """A folder of a run with these files, which was made some time ago."""
    path = runs_home() / name
    path.mkdir(parents=True)
    for file, text in files.items():
        (path / file).write_text(text)
    if old:
        os.utime(path, times=(time.time() - 3600,) * 2)
    return path


NEVER_BEGAN: list[dict[str, str]] = [
    {},
    {"cluster.toml": ""},
    {"cluster.toml": TEXT[:4], "events.jsonl": "", "worker-0.log": ""},
    {"cluster.toml": TEXT[:20], "origin": "/", "launcher.lock": "", "launcher.log": "x"},
    {"origin": "/"},
]


@pytest.mark.parametrize("files", NEVER_BEGAN)
def test_a_launch_that_never_began_is_passed_over_and_removed(files: dict[str, str]) -> None:
    """A kill in between, or a full disk, has left it: no list names it. One that may be being
    written just now stays."""
    half("new", files, old=False)
    half("old", files, old=True)
    assert RunFolder.scan() == ([], [])
    assert names() == ["new"]


@pytest.mark.parametrize(
    "files",
    [
        {"cluster.toml": TEXT},
        {"cluster.toml": f"\ufeff{TEXT}", "events.jsonl": ""},
        {"cluster.toml": TEXT[:4], "events.jsonl": "{}\n"},
        {"cluster.toml": TEXT[:4], "worker-0.log": "began"},
        {"notes.txt": ""},
    ],
)
def test_what_may_have_begun_or_is_not_ours_stays(files: dict[str, str]) -> None:
    """A whole file, a record, a log: tasks may live on hosts."""
    half("old", files, old=True)
    found, unreadable = RunFolder.scan()
    assert len(found) + len(unreadable) == 1 and names() == ["old"]


def test_a_launcher_at_work_keeps_its_folder() -> None:
    """Whatever its disk has lost."""
    path = half(f"old-{os.getpid()}", {"cluster.toml": ""}, old=False)
    lock = RunFolder(path).take_lock()
    assert lock is not None
    os.utime(path, times=(time.time() - 3600,) * 2)
    RunFolder.scan()
    assert names() == [path.name]
    os.close(lock)


def test_a_folder_appears_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails in between leaves nothing; a kill leaves what no list takes for a run."""
    cluster = loads(TEXT, "x", Path("/"))
    seen: list[tuple[list[RunFolder], list[object]]] = []
    write = Path.write_text

    def look(path: Path, *words: str, **options: str) -> int:
        written = write(path, *words, **options)
        seen.append(RunFolder.scan())  # type: ignore[arg-type]
        return written

    monkeypatch.setattr(Path, "write_text", look)
    folder = RunFolder.create("x-1", TEXT, cluster)
    assert seen == [([], [])] * 2 and names() == ["x-1"]
    assert folder.origin == Path("/") and folder.cluster_file.read_text() == TEXT

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TfmuxError, match="No space left"):
        RunFolder.create("x-2", TEXT, cluster)
    assert names() == ["x-1"]


@pytest.mark.parametrize("key", ["workdir", "command", "name"])
def test_bytes_that_are_not_utf8_are_refused_in_a_text(key: str) -> None:
    """Python reads them from command lines as surrogates; no copy of the file could hold them."""
    text = TEXT.replace("[run]", '[run]\nworkdir = "work"').replace("true", "command")
    text = text.replace('name = "x"', 'name = "name"')
    text = text.replace({"workdir": '"work', "command": '"comm', "name": '"na'}[key], '"d\udce9')
    with pytest.raises(ClusterFileError, match=r":[1-9]: .*not UTF-8"):
        loads(text, "file", Path("/"))
