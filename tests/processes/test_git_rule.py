"""Files that git ignores do not go to hosts. The expected ones are those that git itself lists."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.files.listing import Tree, list_tree

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    """What git prints; who commits is said here, since the home is empty."""
    own = ("-c", "user.name=t", "-c", "user.email=t@t")
    env = os.environ | {"GIT_ALLOW_PROTOCOL": "file"}
    done = subprocess.run(
        ["git", *own, *words], cwd=folder, capture_output=True, check=True, env=env
    )
    return os.fsdecode(done.stdout)


def listed(folder: Path) -> set[str]:
    """The files that git tracks, or does not ignore."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return {name for name in names.split("\0") if (folder / name).is_file()}


def sent(folder: Path) -> set[str]:
    """The files that go to a host."""
    return {each.path for each in list_tree(Tree("work", folder)).listed if each.kind == "f"}


def make(root: Path, *names: str) -> None:
    """Makes files, and the directories above them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


NAMES = (
    "train.py", "notes.tmp", "data/kept.csv", "data/raw/big.csv", "data/raw/tracked.csv",
    "proj/train.py", "proj/local.py", "proj/out/log", "proj/out/deep/model", "proj/own~",
    "proj/sub/x.json", "proj/sub/forced.json", "proj/é ü.py", "proj/[odd] name", "proj/#hash",
    "other/y",
)  # fmt: skip


LISTS = (".gitignore", "proj/.gitignore")


def repository(root: Path, *options: str) -> None:
    """A repository with all kinds of lists, in which two ignored files are tracked."""
    root.mkdir()
    git(root, "init", "-q", *options)
    make(root, *NAMES)
    (root / ".gitignore").write_text("*.tmp\nraw/\n*.json\n/other/*\n!/other/z\n\\#hash\n")
    (root / "proj/.gitignore").write_text("out/\n!out/log\n\\[odd\\]*\n")
    (root / ".git/info/exclude").write_text("local.py\n")
    git(root, "add", "-f", "data/raw/tracked.csv", "proj/sub/forced.json", "train.py", *LISTS)
    git(root, "commit", "-qm", "first")


def test_a_repository_and_a_directory_in_it(tmp_path: Path, tfmux_home: Path) -> None:
    """With what this user ignores everywhere; a file that is ignored and tracked goes."""
    (tfmux_home / ".config/git").mkdir(parents=True)
    (tfmux_home / ".config/git/ignore").write_text("*~\n")
    repository(tmp_path / "repo")
    for folder in (tmp_path / "repo", tmp_path / "repo/proj", tmp_path / "repo/data"):
        assert sent(folder) == listed(folder), folder
    assert "proj/sub/forced.json" in sent(tmp_path / "repo")
    assert "local.py" not in sent(tmp_path / "repo/proj")
    (tmp_path / "file").write_text("*.py\n")
    git(tmp_path / "repo", "config", "core.excludesFile", str(tmp_path / "file"))
    assert sent(tmp_path / "repo/proj") == listed(tmp_path / "repo/proj")


def split(root: Path) -> None:
    git(root, "update-index", "--split-index")
    make(root, "data/raw/later.csv")
    git(root, "add", "-f", "data/raw/later.csv")


def version(number: int) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        make(root, "proj/sub/longer-name/" + "x" * 200 + ".json")
        git(root, "add", "-Nf", "proj/sub")
        git(root, "update-index", "--index-version", str(number))

    return change


@pytest.mark.parametrize("change", [version(2), version(3), version(4), split])
def test_every_form_of_the_index_is_read(change: Callable[[Path], None], tmp_path: Path) -> None:
    """Every form of the index tells which files are tracked."""
    repository(tmp_path / "repo")
    change(tmp_path / "repo")
    assert sent(tmp_path / "repo") == listed(tmp_path / "repo")


def test_a_repository_with_longer_hashes(tmp_path: Path) -> None:
    """Its index has them, too."""
    repository(tmp_path / "repo", "--object-format=sha256")
    assert sent(tmp_path / "repo") == listed(tmp_path / "repo")


def test_a_further_work_tree(tmp_path: Path) -> None:
    """Its `.git` is a file, its index its own, and `info/exclude` that of the repository."""
    repository(tmp_path / "repo")
    git(tmp_path / "repo", "worktree", "add", "-q", str(tmp_path / "tree"))
    make(tmp_path / "tree", "proj/local.py", "proj/other.py", "data/raw/more.csv", "a.tmp")
    assert sent(tmp_path / "tree") == listed(tmp_path / "tree") >= {"proj/other.py"}
    assert not sent(tmp_path / "tree") & {"proj/local.py", "data/raw/more.csv", "a.tmp", ".git"}


def test_a_submodule_in_it(tmp_path: Path) -> None:
    """Its own rules hold in it, beside those around it."""
    repository(tmp_path / "lib")
    repository(tmp_path / "repo")
    git(tmp_path / "repo", "submodule", "add", "--force", str(tmp_path / "lib"), "proj/out/lib")
    inner = tmp_path / "repo/proj/out/lib"
    make(inner, "fresh.py", "data/raw/more.csv")
    whole = {name.removeprefix("proj/out/lib/") for name in sent(tmp_path / "repo")}
    tracked = set(git(inner, "ls-files", "-z").split("\0")) - {""}
    assert whole >= tracked and "data/raw/more.csv" not in whole
    assert sent(inner) == listed(inner)
