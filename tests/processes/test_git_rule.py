"""Files that git ignores do not go to hosts. The expected ones are those that git itself lists."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.files.listing import Copied, Tree, list_tree

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


def test_a_configuration_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do variables of a shell lead to another repository."""
    repository(tmp_path / "repo")
    program = tmp_path / "monitor"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    program.chmod(0o755)
    git(tmp_path / "repo", "config", "core.fsmonitor", str(program))
    expected = listed(tmp_path / "repo")
    (tmp_path / "started").unlink(missing_ok=True)
    repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert sent(tmp_path / "repo") == expected
    assert not (tmp_path / "started").exists()


def no_git(folder: Path, tools: Path) -> str:
    return "git is not installed"


def refuses(folder: Path, tools: Path) -> str:
    """Its folder is somebody else's."""
    (tools / "git").symlink_to(str(shutil.which("git")))
    for path in (folder, folder / ".git"):
        os.chown(path, 12345, 12345)
    return "dubious ownership"


def hangs(folder: Path, tools: Path) -> str:
    script(tools / "git", "exec /bin/sleep 600")
    return "no answer in"


def floods(folder: Path, tools: Path) -> str:
    script(tools / "git", "exec /usr/bin/yes")
    return "status"


def lies(folder: Path, tools: Path) -> str:
    script(tools / "git", "echo stolen >&2; exit 3")
    return "stolen"


def script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("make_silent", [no_git, refuses, hangs, floods, lies])
def test_where_git_does_not_answer_its_files_count(
    make_silent: Callable[[Path, Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files above the directory count, too; and that git was not asked is said."""
    if make_silent is refuses and os.getuid():
        pytest.skip("only root gives files away")
    repo, tools = tmp_path / "repo", tmp_path / "tools"
    repository(repo)
    tools.mkdir()
    why = make_silent(repo, tools)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("launcher.files.gitignore._SECONDS", 1.0)
    monkeypatch.setattr("launcher.files.gitignore._MOST_BYTES", 1 << 16)
    listing = list_tree(Tree("work", repo / "proj"))
    assert why in listing.note and f"{repo}/proj" in listing.note, listing.note
    names = {each.path for each in listing.listed if each.kind == "f"}
    assert "train.py" in names and not names & {"sub/x.json", "out/deep/model"}
    outside = list_tree(Tree("work", tools))
    assert outside.note == ""


def copied(root: Path, *exclude: str) -> Copied:
    """What is copied of a workdir."""
    places = tuple(f"exclude in [run], line {number}" for number, _ in enumerate(exclude, 3))
    tree = Tree("work", root, exclude, exclude_places=places)
    return Copied([(tree, list_tree(tree))])


@pytest.mark.parametrize("inside", ["", "sub/module/"])
def test_no_git_is_copied(inside: str, tmp_path: Path) -> None:
    """Neither the folder of a repository, nor the file of a work tree or of a submodule, nor a
    link."""
    make(tmp_path, f"{inside}a.py", "b/.git/config", "b/c")
    (tmp_path / inside / ".git").write_text("gitdir: /elsewhere\n")
    (tmp_path / "b/d").mkdir()
    (tmp_path / "b/d/.git").symlink_to("/elsewhere")
    tree = Tree("work", tmp_path, ("!.git",))
    assert {each.path for each in list_tree(tree).listed if each.kind != "d"} == {
        f"{inside}a.py",
        "b/c",
    }
    why = copied(tmp_path).problem("b/.git/config")
    assert why == "b/.git/ is not copied: tfmux copies no .git"


REASONS = {
    "a/ignored.py": "{0}/.gitignore:2 (ignored.py)",
    "a/low.py": "{0}/proj/.gitignore:1 (low.py)",
    "a/inner.py": "{0}/proj/a/.gitignore:3 (/inner.*)",
    "raw/x/y.csv": "{0}/.gitignore:4 (raw/)",
    "info.py": "{0}/.git/info/exclude:2 (info.py)",
    "own.py": "{0}/own-ignores:1 (own.py)",
    "left.py": "exclude in [run], line 4 (left*)",
    "a/b.pyc": "tfmux copies no *.pyc",
}
"""Files of the workdir `proj` of a repository, and what leaves each out."""


def make_repository(root: Path) -> Path:
    """The repository in which these files are; returns the workdir, a directory in it."""
    root.mkdir(exist_ok=True)
    git(root, "init", "-q")
    work = root / "proj"
    make(work, *REASONS, "train.py", "a/kept.py", "a/low.txt")
    (root / ".gitignore").write_text("*.tmp\nignored.py\n\nraw/\n")
    (work / ".gitignore").write_bytes(b"low.py\r\n!kept.py\r\n")
    (work / "a/.gitignore").write_text("# of a\n\n/inner.*\n")
    (root / ".git/info/exclude").write_text("# git ls-files\ninfo.py\n")
    (root / "own-ignores").write_text("own.py\n")
    git(root, "config", "core.excludesFile", f"{root}/own-ignores")
    return work


def test_the_line_is_named_that_leaves_a_file_out(tmp_path: Path) -> None:
    """Also those of the repository around the workdir, and of git's other files."""
    work = make_repository(tmp_path)
    excluded = ("*.log", "left*")
    left = {".gitignore", "a/.gitignore", "train.py", "a/kept.py", "a/low.txt"}
    tree = Tree("work", work, excluded)
    assert {each.path for each in list_tree(tree).listed if each.kind == "f"} == left
    found = copied(work, *excluded)
    for path, reason in REASONS.items():
        assert reason.format(tmp_path) in found.problem(path), path
    assert found.problem("train.py") == found.problem("absent.py") == ""
