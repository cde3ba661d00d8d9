"""What is copied to a host and what is not, and the line or the reason that people are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.errors import TfmuxError
from launcher.files import staging
from launcher.files.listing import Copied, Listing, Tree, list_tree
from launcher.files.staging import read_tree


def make(root: Path, *names: str) -> None:
    """Makes empty files, and the directories above them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def repository(root: Path) -> None:
    """Makes what git knows a repository by."""
    make(root, ".git/HEAD", ".git/info/exclude", ".git/config")


def copied(root: Path, *exclude: str, named: bool = True) -> Copied:
    """What is copied of a workdir."""
    places = tuple(f"exclude in [run], line {number}" for number, _ in enumerate(exclude, 3))
    tree = Tree("work", root, exclude, exclude_places=places, named=named)
    return Copied([(tree, list_tree(tree))])


def paths(root: Path, *exclude: str) -> set[str]:
    """The files and links that are copied."""
    listing = list_tree(Tree("work", root, exclude))
    return {each.path for each in listing.listed if each.kind != "d"}


def test_virtual_environments_are_known_by_their_marks(tmp_path: Path) -> None:
    """Whatever they are called; a directory of another kind goes, whatever it is called."""
    make(tmp_path, "env/pyvenv.cfg", "env/bin/activate", "tools/py311/conda-meta/history")
    make(tmp_path, "tools/py311/bin/python", "venv/model.py", "conda/meta.yaml", "train.py")
    assert paths(tmp_path) == {"venv/model.py", "conda/meta.yaml", "train.py"}
    assert "env/ is not copied: it is a virtual environment (pyvenv.cfg)" in copied(
        tmp_path
    ).problem("env/bin/activate")


@pytest.mark.parametrize("inside", ["", "sub/module/"])
def test_no_git_is_copied(inside: str, tmp_path: Path) -> None:
    """Neither the folder of a repository, nor the file of a work tree or of a submodule, nor a
    link."""
    make(tmp_path, f"{inside}a.py", "b/.git/config", "b/c")
    (tmp_path / inside / ".git").write_text("gitdir: /elsewhere\n")
    (tmp_path / "b/d").mkdir()
    (tmp_path / "b/d/.git").symlink_to("/elsewhere")
    assert paths(tmp_path, "!.git") == {f"{inside}a.py", "b/c"}
    why = copied(tmp_path).problem("b/.git/config")
    assert why == "b/.git/ is not copied: tfmux copies no .git"


def test_permissions_stay(tmp_path: Path) -> None:
    """Permissions of files and of directories stay."""
    root = tmp_path / "work"
    make(root, "run.sh", "key", "closed/data", "open")
    modes = {"run.sh": 0o750, "key": 0o600, "closed": 0o700, "closed/data": 0o444, "open": 0o664}
    for name, mode in modes.items():
        (root / name).chmod(mode)
    entries = read_tree(Tree("work", root)).entries
    assert {entry.path: entry.mode for entry in entries if entry.path != "."} == modes


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
    repository(root)
    work = root / "proj"
    make(work, *REASONS, "train.py", "a/kept.py", "a/low.txt")
    (root / ".gitignore").write_text("*.tmp\nignored.py\n\nraw/\n")
    (work / ".gitignore").write_bytes(b"low.py\r\n!kept.py\r\n")
    (work / "a/.gitignore").write_text("# of a\n\n/inner.*\n")
    (root / ".git/info/exclude").write_text("# git ls-files\ninfo.py\n")
    (root / "own-ignores").write_text("own.py\n")
    config = f'[core]\n\tbare = false\n\texcludesFile = "{root}/own-ignores" ; mine\n'
    (root / ".git/config").write_text(config)
    return work


def test_the_line_is_named_that_leaves_a_file_out(tmp_path: Path) -> None:
    """Also those of the repository around the workdir, and of git's other files."""
    work = make_repository(tmp_path)
    excluded = ("*.log", "left*")
    left = {".gitignore", "a/.gitignore", "train.py", "a/kept.py", "a/low.txt"}
    assert paths(work, *excluded) == left
    found = copied(work, *excluded)
    for path, reason in REASONS.items():
        assert reason.format(tmp_path) in found.problem(path), path
    assert found.problem("train.py") == found.problem("absent.py") == ""


def test_what_git_ignores_for_this_user(tmp_path: Path, tfmux_home: Path) -> None:
    """By the default file, or by one of the global configuration, in which files are included; a
    repository's own setting wins."""
    repository(tmp_path / "work")
    make(tmp_path / "work", "a", "b", "c", "d", ".gitconfig")
    make(tfmux_home, ".config/git/ignore", "mine/more")
    (tfmux_home / ".config/git/ignore").write_text("a\n")
    assert paths(tmp_path / "work") == {"b", "c", "d", ".gitconfig"}
    (tfmux_home / ".gitconfig").write_text("[include]\npath = mine/more\n[user] name = x\n")
    (tfmux_home / "mine/more").write_text("[CORE]\nexcludesfile = ~/mine/ignores\n")
    (tfmux_home / "mine/ignores").write_text("b\n")
    assert paths(tmp_path / "work") == {"a", "c", "d", ".gitconfig"}
    condition = f'[includeIf "gitdir:{tmp_path}/wo*/"]\npath = ~/mine/work\n'
    with (tfmux_home / ".gitconfig").open("a") as file:
        file.write(condition + '[includeIf "gitdir:/elsewhere/"]\npath = ~/mine/else\n')
    (tfmux_home / "mine/work").write_text('[core] excludesFile = "~/mine/for-\\\nwork"\n')
    (tfmux_home / "mine/else").write_text('[core]\nexcludesFile = ""\n')
    (tfmux_home / "mine/for-work").write_text("c\n")
    assert paths(tmp_path / "work") == {"a", "b", "d", ".gitconfig"}
    (tmp_path / "work/.git/config").write_text("[core]\nexcludesFile =\n")
    assert paths(tmp_path / "work") == {"a", "b", "c", "d", ".gitconfig"}


def test_a_link_by_a_whole_path_that_stays_inside_is_one_inside(tmp_path: Path) -> None:
    """Also through another name of the workdir. A link out of it, or to nothing, is left out."""
    root = tmp_path / "real"
    make(root, "a/file", "b/c/x")
    make(tmp_path, "outside/file")
    (tmp_path / "alias").symlink_to("real")
    links = {
        "one": f"{root}/a/file",
        "b/c/two": f"{tmp_path}/alias/a",
        "b/root": str(root),
        "three": "../real/b/c",
        "data": "../outside",
        "passwd": "/etc/passwd",
        "latest": "runs/7",
        "self": "self",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    for place in (root, tmp_path / "alias"):
        listing = list_tree(Tree("work", place))
        assert {each.path: each.target for each in listing.listed if each.kind == "l"} == {
            "one": "a/file",
            "b/c/two": "../../a",
            "b/root": "..",
            "three": "b/c",
        }
        assert {each.path for each in listing.left_out} == {"data", "passwd", "latest", "self"}
    found = copied(root)
    assert found.find("b/root/one") is not None and found.find("three/two/file") is not None
    assert found.find("data/file") is None and found.find("self") is None
    assert found.problem("data/file").startswith("data is not copied: it is a link to ../outside")
    assert "which does not exist" in found.problem("latest")


def test_a_script_behind_a_link_may_be_left_out(tmp_path: Path) -> None:
    """A link goes, and what it leads to does not."""
    make(tmp_path, "old/train.py")
    (tmp_path / "train.py").symlink_to("old/train.py")
    (tmp_path / ".gitignore").write_text("old/\n")
    found = copied(tmp_path)
    assert found.find("train.py") is None
    assert f"{tmp_path}/.gitignore:1 (old/)" in found.problem("train.py")


def refused(root: Path, *exclude: str, named: bool = False) -> str:
    """What is said of a workdir that is not copied; empty where it is."""
    try:
        copied(root, *exclude, named=named)
    except TfmuxError as error:
        return str(error)
    return ""


def test_the_home_is_copied_only_where_it_is_named(tmp_path: Path, tfmux_home: Path) -> None:
    """So is a directory with SSH keys, wherever they lie in it, unless they are left out."""
    make(tfmux_home, "train.py")
    (tmp_path / "link").symlink_to(tfmux_home)
    for place in (tfmux_home, tmp_path / "link"):
        assert "refused to copy your home to hosts" in refused(place)
        assert 'workdir = "~"' in refused(place)
    assert refused(tfmux_home, named=True) == ""
    assert "refused to copy all files of this machine" in refused(Path("/"))
    (tmp_path / "work/backup/.ssh").mkdir(parents=True)
    make(tmp_path, "work/backup/.ssh/id_ed25519")
    assert "backup/.ssh: refused to copy SSH keys" in refused(tmp_path / "work")
    for inside in ("work/backup/.ssh", "work/backup/.ssh/keys"):
        (tmp_path / inside).mkdir(exist_ok=True)
        assert f"{inside}: refused to copy SSH keys" in refused(tmp_path / inside)
        assert refused(tmp_path / inside, named=True) == ""
    assert refused(tmp_path / "work", ".ssh") == refused(tmp_path / "work", named=True) == ""
    (tmp_path / "work/.gitignore").write_text("backup/\n")
    assert refused(tmp_path / "work") == ""


def test_a_file_that_vanishes_while_it_is_hashed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a directory."""
    make(tmp_path, "a", "b", "c/d")

    def then_gone(tree: Tree) -> Listing:
        listing = list_tree(tree)
        (tmp_path / "b").unlink()
        (tmp_path / "c/d").unlink()
        (tmp_path / "c").rmdir()
        return listing

    monkeypatch.setattr(staging, "list_tree", then_gone)
    entries = read_tree(Tree("work", tmp_path)).entries
    assert {entry.path for entry in entries if entry.kind == "f"} == {"a"}


def test_what_cannot_be_read_is_refused_before_it_is_hashed(tmp_path: Path) -> None:
    """With its path and the system's words."""
    make(tmp_path, "a", "closed/b")
    (tmp_path / "a").chmod(0)
    if os.access(tmp_path / "a", os.R_OK):
        pytest.skip("root reads everything")
    assert refused(tmp_path) == f"{tmp_path}/a: Permission denied"
