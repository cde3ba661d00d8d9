"""Cluster files that are cut, hostile, odd, unreadable or huge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.cluster.read import load, loads
from launcher.errors import ClusterFileError
from tests.support.cluster_texts import GOOD, changed, problems


def test_a_file_cut_anywhere_is_read_or_explained() -> None:
    """Half a file never raises anything but the error for it, with a line."""
    for cut in range(0, len(GOOD), 7):
        try:
            loads(GOOD[:cut], "cluster.toml", Path("/"))
        except ClusterFileError as error:
            assert all(p.line is not None or p.key == "jobs" for p in error.problems), cut


@pytest.mark.parametrize("number", ["0x" + "f" * 4000, "nan", "inf", "-inf", "1e308"])
def test_a_number_beyond_all_bounds_is_named(number: str) -> None:
    """A whole number that no float holds is as wrong as any other one."""
    with pytest.raises(ClusterFileError) as caught:
        loads(GOOD.replace("[run]", f"[run]\ngrace = {number}", 1), "c", Path("/"))
    assert [(p.key, p.line is not None) for p in caught.value.problems] == [("run.grace", True)]


def test_names_without_end_are_explained_in_a_few_lines() -> None:
    """A table header of 20,000 parts, a job of a million letters that is no table [jobs], and as
    many letters without quotes."""
    deep = "[" + ".".join("a" * 20_000) + "]\nx = 1\n"
    long = f"[{'j' * 1_000_000}]\ntasks = ['localhost:1']\n"
    bare = f"x = {'y' * 1_000_000}\n"
    listed = f"x = [{'y' * 1_000_000}]\n"
    for text in (deep, long, bare, listed):
        with pytest.raises(ClusterFileError) as caught:
            loads(GOOD + text, "c", Path("/"))
        assert len(str(caught.value)) < 2000


def test_hostile_texts_do_not_reach_the_terminal() -> None:
    """Escape sequences in keys, values and names are shown as escapes."""
    text = changed("tf1:2222", "\\u001b]52;c;AA\\u0007:1").replace("success", '"\\u001b[2J"')
    with pytest.raises(ClusterFileError) as caught:
        loads(text, "c", Path("/"))
    assert len(caught.value.problems) == 2
    assert "\x1b" not in str(caught.value) and "\x07" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000,
        "x = " + "[" * 400 + "]" * 400,
        "x = " + "9" * 5000,
        "x = 0x" + "f" * 5000,
        "x = " + "{a=" * 3000,
        "[" + "a." * 5000 + "b]",
        "[[jobs.ps]]\ntasks = []",
        "hosts = 3\njobs = 4",
        "jobs = []",
        "[hosts]\n[jobs]\n[run]\n[start]\n[metrics]",
        "run = 2024-01-01\n[jobs.a]\ntasks = [{}]\ncommand = [[]]",
        "[start]\norder = [3, [[]]]\nready = 5\n[jobs.a]\ntasks = [1]\nenv = []",
        'base = "/tmp"\n_base = "/tmp"',
        "\ufeff\ufeff",
        "\r",
    ],
    ids=lambda text: text[:20],
)
def test_odd_texts_are_explained(text: str) -> None:
    """Whatever TOML can say gets a sentence of bearable length."""
    for problem in problems(text):
        assert problem.message
        assert len(str(problem)) < 600


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    file = tmp_path / "c.toml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(file).base == tmp_path


def test_what_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    """A Latin-1 byte is shown with its line, UTF-16 is recognised."""
    file = tmp_path / "c.toml"
    file.write_bytes(GOOD.encode() + b"# caf\xe9\n")
    with pytest.raises(ClusterFileError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert (problem.line, problem.found) == (GOOD.count("\n") + 1, "byte 0xe9")
    file.write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(ClusterFileError, match="UTF-16"):
        load(file)


def test_what_is_no_file_is_explained(tmp_path: Path) -> None:
    """Missing (with the nearest name), a directory, a pipe, a device, an I/O error, a loop."""
    (tmp_path / "cluster.toml").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for path, why in (
        (tmp_path / "clutser.toml", 'no such file: did you mean "cluster.toml"'),
        (tmp_path / "none" / "cluster.toml", "no such file"),
        (tmp_path, "a directory"),
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (Path("/proc/self/mem"), "cannot be read"),
        (tmp_path / "loop", "cannot be read"),
        (tmp_path / "x\0y", "null byte"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(ClusterFileError, match=why):
            load(path)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """The permissions are named as the reason; root reads as nobody for once."""
    file = tmp_path / "c.toml"
    file.write_text(GOOD)
    file.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(ClusterFileError, match="permission denied"):
            load(file)
    finally:
        if root:
            os.seteuid(0)


def test_a_launch_needs_the_local_files(tmp_path: Path) -> None:
    """workdir, data and identity must be there for a launch, not for reading; `base` says
    where they are for a copy of the file that lies elsewhere."""
    text = changed("success = ", 'workdir = "code"\ndata = ["digits"]\nsuccess = ').replace(
        'address = "tf1"', 'identity = "key"'
    )
    file = tmp_path / "c.toml"
    file.write_text(text)
    assert load(file)
    found = [(p.key, p.line) for p in problems(text, for_launch=True, base=tmp_path)]
    assert found == [("hosts.tf1.identity", 5), ("run.workdir", 18), ("run.data[0]", 19)]
    endless = text.replace('"digits"', f'"{"x" * 300}"')  # longer than any file's name
    found_endless = problems(endless, for_launch=True, base=tmp_path)
    assert len(found_endless) == 3
    endless = text.replace('"digits"', f'"{"x" * 300_000}"')
    assert all(len(str(p)) < 2000 for p in problems(endless, for_launch=True, base=tmp_path))
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)
    (home / "digits").mkdir()
    (home / "key").touch()
    assert load(file, base=home, for_launch=True).base == home


@pytest.mark.parametrize(
    ("hosts", "tasks", "key", "said"),
    [
        (1024, 2048, "", ""),
        (1025, 1, "hosts", "the file has 1,025 hosts, and a run has at most 1,024"),
        (1, 2049, "jobs", "the file has 2,049 tasks, and a run has at most 2,048"),
    ],
)
def test_more_than_one_launcher_holds_is_refused(
    hosts: int, tasks: int, key: str, said: str
) -> None:
    """The limits are those that the manual states; a file of exactly that size is read."""
    tables = "".join(f'[hosts.h{number}]\nssh = "h{number}"\n' for number in range(hosts))
    places = ", ".join(f'"h{number % hosts}:{2000 + number}"' for number in range(tasks))
    text = f'{tables}[jobs.worker]\ntasks = [{places}]\n[run]\ncommand = ["true"]\n'
    if not key:
        assert len(loads(text, "c", Path("/")).jobs["worker"].tasks) == tasks
        return
    (problem,) = problems(text)
    assert problem.key == key and problem.line and said in problem.message
