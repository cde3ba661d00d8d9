"""Files that are copied to a host or left out, the reason that people are told, and kept copies."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from launcher.agent import folders
from launcher.agent.folders import Folders
from launcher.agent.tree import TreeEntry, keep_for_reuse
from launcher.cluster.patterns import IgnoreRules
from launcher.errors import TfmuxError
from launcher.files import staging
from launcher.files.listing import Copied, Listing, Tree, list_tree
from launcher.files.needed import above_workdir, left_out_command, other_files
from launcher.files.staging import read_tree
from launcher.on_host.pipe import Pipe, PipeEnded
from launcher.on_host.transfer import Staging
from launcher.plan.run_plan import Plan
from tests.support.cluster_texts import cluster_text
from tests.support.fixtures.launcher import NOBODY
from tests.support.plans import plan_of
from tests.support.short_programs import Running, message

# What is copied to a host and what is not, and the line or the reason that people are told.


def make(root: Path, *names: str) -> None:
    """Makes empty files, and the directories above them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


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


def test_permissions_stay(tmp_path: Path) -> None:
    root = tmp_path / "work"
    make(root, "run.sh", "key", "closed/data", "open")
    modes = {"run.sh": 0o750, "key": 0o600, "closed": 0o700, "closed/data": 0o444, "open": 0o664}
    for name, mode in modes.items():
        (root / name).chmod(mode)
    entries = read_tree(Tree("work", root)).entries
    assert {entry.path: entry.mode for entry in entries if entry.path != "."} == modes


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
    make(tmp_path, "a", "closed/b")
    (tmp_path / "a").chmod(0)
    if os.access(tmp_path / "a", os.R_OK):
        pytest.skip("root reads everything")
    assert refused(tmp_path) == f"{tmp_path}/a: Permission denied"


# Files of a workdir that `.gitignore` files and `exclude` keep from hosts; the expected ones are
# those that git lists.


def sent(root: Path, exclude: tuple[str, ...] = ()) -> set[str]:
    """The files of a tree that go to a host, without `.gitignore` files."""
    entries = read_tree(Tree("work", root, exclude)).entries
    return {entry.path for entry in entries if entry.kind == "f"} - {".gitignore"}


def test_a_link_to_a_directory_is_sent_as_a_link(tmp_path: Path) -> None:
    """Also one to the tree itself, which would have no end."""
    make(tmp_path, "data/a")
    (tmp_path / "latest").symlink_to("data")
    (tmp_path / "data/up").symlink_to("..")
    entries = {entry.path: entry.kind for entry in read_tree(Tree("work", tmp_path, ())).entries}
    assert {path for path, kind in entries.items() if kind == "f"} == {"data/a"}
    assert {path for path, kind in entries.items() if kind == "l"} == {"latest", "data/up"}


@pytest.mark.parametrize("line", ["foo\\", "!", "[z-a]", "[[:letter:]]", "[abc"])
def test_a_line_that_is_no_pattern_matches_nothing(line: str, tmp_path: Path) -> None:
    """The lines around it are applied."""
    make(tmp_path, "foo", "a", "b.tmp", "c.log")
    (tmp_path / ".gitignore").write_text(f"*.tmp\n{line}\n*.log\n")
    assert sent(tmp_path) == {"foo", "a"}


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("*.[[:alpha:]]", {"a b", "c.1", "d-", "e/f"}),
        ("*.[![:alpha:]]", {"a b", "b.x", "d-", "e/f"}),
        ("*[[:space:]]*", {"b.x", "c.1", "d-", "e/f"}),
        ("?[[:punct:]]", {"a b", "b.x", "c.1", "e/f"}),
        ("*.[[:digit:]x]", {"a b", "d-", "e/f"}),
        (r"e\/f", {"a b", "b.x", "c.1", "d-"}),
    ],
)
def test_patterns_of_posix(line: str, left: set[str], tmp_path: Path) -> None:
    """Classes of characters, and an escaped slash."""
    make(tmp_path, "a b", "b.x", "c.1", "d-", "e/f")
    (tmp_path / ".gitignore").write_text(line + "\n")
    assert sent(tmp_path) == left


def test_a_pattern_of_many_stars_takes_no_time(tmp_path: Path) -> None:
    """With an expression that backtracks it would be hours."""
    make(tmp_path, "a" * 200, "é" * 100, "a" * 199 + "b")
    (tmp_path / ".gitignore").write_text("*a" * 25 + "*b\n")
    assert sent(tmp_path) == {"a" * 200, "é" * 100}


def test_names_that_are_no_utf_8() -> None:
    """A class of characters holds whole characters; a byte that is none is in no class."""
    names = [os.fsdecode(name) for name in (b"x\xff", "xé".encode(), b"y\xff.tmp")]
    rules = IgnoreRules(["x[é]"])
    assert [rules.ignores(name) for name in names] == [None, True, None]


def test_the_innermost_file_decides(tmp_path: Path) -> None:
    """The innermost file takes back what an outer one ignores, but not what is below an ignored
    directory, and what it says of a directory is not said of the files in it."""
    make(tmp_path, "a.json", "configs/model.json", "configs/a.tmp", "configs/keep/b.tmp", "out/c")
    (tmp_path / ".gitignore").write_text("*.json\n*.tmp\nout/\n")
    (tmp_path / "configs/.gitignore").write_text("!*.json\n!keep/\n")
    (tmp_path / "out/.gitignore").write_text("!c\n")
    assert sent(tmp_path) == {"configs/.gitignore", "configs/model.json"}


def test_an_inner_file_takes_back_nothing_that_is_excluded(tmp_path: Path) -> None:
    """Neither `exclude` nor what is never sent."""
    make(tmp_path, "a/m.ckpt", "a/m.pyc", "a/.venv/x", "a/kept")
    (tmp_path / "a/.gitignore").write_text("!m.*\n!.venv/\n")
    assert sent(tmp_path, ("*.ckpt",)) == {"a/.gitignore", "a/kept"}


def test_a_directory_may_be_ignored_but_for_some_files(tmp_path: Path) -> None:
    """`a/**` ignores what is in a directory, not the directory."""
    make(tmp_path, "a/x", "a/keep.json", "b/x", "b/c/keep.json", "d")
    (tmp_path / ".gitignore").write_text("a/**\n!a/keep.json\n/*\n!*/\nb/**\n!b/**/\n!keep.json\n")
    assert sent(tmp_path) == {"a/keep.json", "b/c/keep.json"}


# Files that commands need or name and hosts do not get: modules of `python -m`, and imports.

FILES = {
    "train.py": "import os, wandb, src.models.net\nfrom src import helpers, own\n",
    "src/__init__.py": "",
    "src/helpers.py": "from . import deep\nfrom .deep.er import x\n",
    "src/deep/__init__.py": "",
    "src/deep/er.py": "from .. import models as m\nimport secret\n",
    "src/models/__init__.py": "",
    "src/models/net.py": "",
    "src/own.py": "from ... import above\nfrom ....x import above\n",
    "secret.py": "",
    "wandb/run-1/log.txt": "",
    "lonely/mod.py": "",
}


def needs(root: Path, *command: str) -> tuple[str, set[str]]:
    """The refusal of a command, and what is said of other files, with these lines ignored."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".gitignore").write_text("models/\nsecret.py\nwandb/\nlonely/\n")
    text = cluster_text({"worker": "far"}, hosts={"far": {"ssh": "far"}}, command=list(command))
    plan: Plan = plan_of(text)
    tree = Tree("work", root)
    copied = Copied([(tree, list_tree(tree))])
    said = {why for _, why in other_files(plan, plan.host("far"), copied)}
    return left_out_command(plan, plan.host("far"), copied), said


MODELS = "src/models/ is not copied: it is left out by {root}/.gitignore:1 (models/)"
SECRET = "secret.py is not copied: it is left out by {root}/.gitignore:2 (secret.py)"


@pytest.mark.parametrize("command", [("train.py",), ("-m", "train")])
def test_what_modules_import_is_followed_and_named_once(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """Packages in packages, relative imports, and modules that modules import; a directory that
    has no module in it is not what `import wandb` means."""
    refusal, said = needs(tmp_path, "python3", *command)
    assert not refusal
    assert said == {
        f"train.py imports src.models, but {MODELS}".format(root=tmp_path),
        f"src/deep/er.py imports secret, but {SECRET}".format(root=tmp_path),
    }


@pytest.mark.parametrize("shell", ["source .venv/bin/activate; python train.py", ". .venv/a"])
def test_what_is_behind_a_link_that_is_not_copied_is_named(shell: str, tmp_path: Path) -> None:
    """Also where the link leads to nothing here: a virtual environment of another machine."""
    (tmp_path / ".venv").symlink_to("/no/such/venv")
    _, said = needs(tmp_path, "bash", "-c", shell)
    assert [why for why in said if ".venv is not copied: it is a link to /no/such/venv" in why]


@pytest.mark.parametrize("name", ["src.models", "src.models.net"])
def test_a_module_that_its_package_lacks_is_refused(name: str, tmp_path: Path) -> None:
    """Its package is copied, so that it comes from nowhere else."""
    refusal, _ = needs(tmp_path, "python3", "-m", name)
    assert refusal == f"worker:0 cannot run on far: {MODELS}".format(root=tmp_path)


@pytest.mark.parametrize("name", ["lonely.mod", "secret", "src.nowhere", "src.deep"])
def test_a_module_that_may_come_from_elsewhere_is_not(name: str, tmp_path: Path) -> None:
    """The host may have it installed."""
    assert needs(tmp_path, "python3", "-m", name)[0] == ""


# Words of commands that lead above the workdir: its copy on a host has nothing beside it.

NAMED: list[tuple[list[str], list[str]]] = [
    (["python3", "train.py", "--out=../results"], ["../results"]),
    (["python3", "train.py", "--out", "../../runs/x"], ["../../runs/x"]),
    (["sh", "-c", "python3 train.py > ../log.txt"], ["../log.txt"]),
    (["python3", "train.py", "out/../../results"], ["../results"]),
    (["python3", "../train.py", "../results", "../results/"], ["../train.py", "../results"]),
    (["python3", "train.py", "--out=out/../results", "..x", "a..b", "1..2"], []),
    (["python3", "train.py", "/data/../results", "~/../x"], []),
    (["sh", "-c", "cd src && python3 train.py ../out"], ["../out"]),
]


@pytest.mark.parametrize(("command", "paths"), NAMED)
def test_each_path_above_the_workdir_is_named_once(command: list[str], paths: list[str]) -> None:
    """However it is written; not what is below the workdir, nor absolute."""
    text = cluster_text({"worker": "far"}, hosts={"far": {"ssh": "far"}}, command=command)
    plan = plan_of(text)
    assert [path for _, path in above_workdir(plan, plan.host("far"))] == paths


@pytest.mark.parametrize("more", ['directory = "/srv"', 'setup = "cd src"', 'workdir = ""'])
def test_nothing_is_said_where_it_is_not_known(more: str) -> None:
    """Nothing is copied, or `setup` leads elsewhere."""
    command = ["python3", "train.py", "../results"]
    kept = {} if "workdir" in more or "directory" in more else {"workdir": "."}
    hosts = {"far": {"ssh": "far"}}
    text = cluster_text({"worker": "far"}, hosts=hosts, command=command, more=more, **kept)
    plan = plan_of(text)
    assert list(above_workdir(plan, plan.host("far"))) == []
    assert json.dumps(command) in text


# Staged trees that are kept for the next launch: what a task has done to them, and their end.


def staging_of(home: Path, data: bytes) -> Running:
    """The program on a host that stages a workdir of one file for the run 1."""
    (home / "1").mkdir()
    entry = TreeEntry("work", "a", "f", 0o644, len(data), hashlib.sha256(data).hexdigest())

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(home / "1/stage"), "key").run([entry])

    return Running(work)


def launch(home: Path, run: str, files: dict[str, str], key: str = "key") -> Path:
    """Stages the workdir of a run from these files; all launches have one cache."""
    (home / run).mkdir(exist_ok=True)
    entries, contents = [], {}
    for name, text in files.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        entries.append(TreeEntry("work", name, "f", 0o644, len(text), digest))
        contents[digest] = text
    stage = home / run / "stage"

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(stage), key).run(entries)

    with Running(work) as program:
        for content in program.receive()["missing"]:
            program.write(contents[content].encode())
        assert program.receive() == {"built": True}
    return stage / "work"


def keep(work: Path) -> None:
    """The run is over."""
    keep_for_reuse(str(work.parent))


def found(work: Path) -> dict[str, str]:
    """The files of a workdir."""
    return {
        str(path.relative_to(work)): path.read_text() for path in work.rglob("*") if path.is_file()
    }


def test_a_directory_that_a_task_made_read_only_is_used_again(home: Path) -> None:
    """Files in it may change, come and go, and what the task left in a directory of its own is
    gone."""
    first = {"data/x": "x", "data/y": "y", "data/deep/z": "z"}
    work = launch(home, "1", first)
    (work / "out/ro").mkdir(parents=True)
    (work / "out/ro/checkpoint").write_text("old")
    inode = (work / "data/y").stat().st_ino
    for name in ("out/ro", "out", "data/deep", "data"):
        (work / name).chmod(0o555)
    keep(work)
    second = {"data/x": "changed", "data/y": "y", "data/new": "new"}
    work = launch(home, "2", second)
    assert found(work) == second
    assert (work / "data/y").stat().st_ino == inode
    assert not (work / "out").exists() and not (work / "data/deep").exists()
    (work / "data").chmod(0)
    work = launch(home, "2", first)
    assert found(work) == first


def test_another_users_files_are_not_in_the_next_run(home: Path) -> None:
    """They cannot be removed: neither from the tree of a run that is staged again, nor from one
    that was kept."""
    if os.getresuid() != (NOBODY, NOBODY, 0):
        pytest.skip("needs root, to make another user's files")
    files = {"a": "a"}
    work = launch(home, "1", files)
    for _ in range(2):
        _leave_files_of_root(work)
        assert found(launch(home, "1", files)) == files
    _leave_files_of_root(work)
    keep(work)
    trees = home / "cache/trees"
    assert not trees.exists()
    trees.mkdir()
    (home / "1/stage").rename(trees / "key")
    (home / "1/stage.index").rename(trees / "key.index")
    assert found(launch(home, "2", files)) == files


def _leave_files_of_root(work: Path) -> None:
    os.seteuid(0)
    (work / "out").mkdir()
    (work / "out/checkpoint").write_text("old")
    os.seteuid(NOBODY)


def test_a_tree_that_was_not_used_for_long_goes_with_its_index(home: Path) -> None:
    """Trees of other launches stay."""
    for key in ("old", "new"):
        keep(launch(home, key, {"a": "a"}, key))
    trees = home / "cache/trees"
    os.utime(trees / "old.index", (0, 0))
    (home / "cache/pruned").unlink()
    launch(home, "1", {"a": "a"}, "other")
    assert {path.name for path in trees.iterdir()} == {"new", "new.index"}


def test_only_contents_are_pruned_from_a_cache_that_others_share(home: Path) -> None:
    """Stamps of `prepare` lines, whatever their age, and what else lies in a shared home."""
    launch(home, "1", {"a": "a"})
    cache = home / "cache"
    (content,) = (each for each in cache.glob("??/*") if each.is_file())
    others = [cache / "prepared/0123.host", cache / "hashes/one", cache / "file"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for path in (content, *others):
        os.utime(path, (0, 0))
    (cache / "pruned").unlink()
    launch(home, "2", {"b": "b"})
    assert not content.exists() and all(path.exists() for path in others)


def test_the_runs_folder_goes_with_read_only_directories(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """A link in it is removed, and where it leads nothing is changed."""
    monkeypatch.setattr(folders, "_TEMPORARY", str(home))
    run = Folders("run-1", "far", None, {"XDG_STATE_HOME": str(home / "state")})
    run.make()
    for name in ("other/closed", f"{run.run}/stage/work/ro/inner"):
        (home / name).mkdir(parents=True)
        (home / name / "file").touch()
        (home / name).chmod(0)
    (home / run.run / "stage/work/ro/link").symlink_to(home / "other/closed")
    (home / run.run / "stage/work/ro").chmod(0o555)
    run.remove(proven=True)
    assert not Path(run.run).exists()
    assert (home / "other/closed").stat().st_mode & 0o777 == 0
    (home / "other/closed").chmod(0o700)  # for the fixture


def test_a_launcher_that_was_cut_off_does_not_replace_what_the_next_has_built(home: Path) -> None:
    """Its program was slower; tasks may run in the trees that have come after it."""
    with staging_of(home, b"slow") as slow:
        assert len(slow.receive()["missing"]) == 1
        built = launch(home, "1", {"b": "b"})
        slow.write(b"slow")
        assert slow.read_some() == b""
    assert found(built) == {"b": "b"}
    names = sorted(path.name for path in (home / "1").iterdir())
    assert names == ["stage", "stage.index", "stage.turn"]


def test_a_content_that_came_in_part_is_removed(home: Path) -> None:
    with staging_of(home, bytes(1000)) as cut:
        cut.receive()
        cut.write(bytes(400))
    assert isinstance(cut.error, PipeEnded)
    assert not [path for path in (home / "cache").rglob("*") if path.is_file()]


def test_contents_that_changed_while_they_were_sent_are_asked_for_again(home: Path) -> None:
    """They are not kept; the launcher sends other entries, and may do so without the file."""
    with staging_of(home, b"this") as changed:
        (content,) = changed.receive()["missing"]
        changed.write(b"that")
        assert changed.receive() == {"changed": [content]}
        digest = hashlib.sha256(b"that one").hexdigest()
        changed.write(message({"entries": [["work", "a", "f", 0o640, 8, digest]]}))
        assert changed.receive() == {"missing": [digest]}
        changed.write(b"that one")
        assert changed.receive() == {"built": True}
    assert (home / "1/stage/work/a").read_bytes() == b"that one"
    assert (home / "1/stage/work/a").stat().st_mode & 0o777 == 0o640
    kept = [path.name for path in (home / "cache").glob("??/*") if path.is_file()]
    assert kept == [digest]
