"""Reading cluster files: what is wrong is named with its key, its line and what to write."""

from __future__ import annotations

import os
import re
import textwrap
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.addresses import (
    SshDestination,
    TaskAddress,
    is_loopback,
    parse_address,
    parse_jump,
)
from launcher.cluster.choices import OnDisconnect, OnFailure, OnHangup, Shell, Success
from launcher.cluster.file_model import DEFAULT_LOG_LIMIT, ClusterModel
from launcher.cluster.placeholders import expand
from launcher.cluster.read import load, loads
from launcher.cluster.readiness import PortListens, ProcessStarted
from launcher.cluster.reference import json_schema
from launcher.cluster.values import nearest
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from tests.support.cluster_texts import GOOD, changed, problems
from tests.support.paths import REPOSITORY
from tests.support.tables import tables
from tui.main import main


def test_the_good_file_is_read() -> None:
    """The file that all bad ones below are made from has nothing wrong."""
    cluster = loads(GOOD, "cluster.toml", Path("/"))
    assert [str(task) for task in cluster.jobs["worker"].tasks] == ["tf2:2222", "tf2:auto"]
    assert str(cluster.hosts["tf1"].ssh) == "root@10.77.0.1:22"
    assert cluster.address("tf1") == "tf1"
    assert cluster.address("tf2") == "10.77.0.2"


ROWS = tables("mistakes.tsv")
CLUSTERS = REPOSITORY / "tests/support/clusters"
BAD = {
    name: (old, new, key, int(line), advice) for name, old, new, key, line, advice in ROWS["file"]
}
BAD["long name"] = ('"mnist-async"', f'"{"x" * 10_000}"', "name", 1, "at most 64")
for table, at, place, header in (
    ("run", 18, "success = ", ""),
    ("start", 21, "order = ", ""),
    ("metrics", 21, "[start]\norder", "[metrics]\n"),
):
    for name, text, key, advice in ROWS[table]:
        BAD[name] = (place, f"{header}{text} #", f"{table}.{key}", at, advice)


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_named_with_its_place_and_what_to_write(case: str) -> None:
    """One mistake gives one problem: its key, its line, and what to write instead."""
    old, new, key, line, advice = BAD[case]
    (problem,) = problems(changed(old, new))
    assert (problem.key, problem.line) == (key, line)
    assert advice in problem.message
    assert len(str(problem)) < 400
    assert str(problem).isprintable()


def test_a_command_names_file_line_and_key_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sample of the mistakes; stdout, which is data, stays empty."""
    file = tmp_path / "c.toml"
    for old, new, key, line, _ in [*BAD.values()][::4]:
        file.write_text(changed(old, new))
        assert main(["plan", str(file)]) == 2, new
        out, err = capsys.readouterr()
        assert not out and f"{file}:{line}: {key}: " in err, err


def test_a_long_value_is_shown_shortened() -> None:
    (problem,) = problems(changed('address = "tf1"', f'gpus = "{"9" * 99}"'))
    assert re.fullmatch('"9{30,80}…"', problem.found)


@pytest.mark.parametrize(
    ("task", "part"),
    [
        ("tf1", "port"),
        ("tf1:abc", "port"),
        ("tf1: 2222", "port"),
        ("tf1:70000", "port"),
        ("tf2:2222", "port"),
        (" tf1:2222", "host"),
        ("-tf1:2222", "host"),
        ("the port:2222", "host"),
        ("tf9:2222", "host"),
        ("127.0.0.1:2222", "host"),
    ],
)
def test_the_path_of_a_problem_names_the_half_of_an_address(task: str, part: str) -> None:
    """Programs need not read the message to know which cell of a table is wrong."""
    text = changed('[jobs.worker]\ntasks = ["tf2:2222"', f'[jobs.worker]\ntasks = ["{task}"')
    text = text.replace('"tf1:2222"', '"tf2:2222"', 1) if task == "tf2:2222" else text
    (problem,) = problems(text)
    assert problem.path == ("jobs", "worker", "tasks", 0, part)
    assert problem.key == "jobs.worker.tasks[0]"


def test_mistakes_are_told_in_two_rounds() -> None:
    """All wrong values come in one error, in the order of the lines; then, in a file whose values
    are right, all that is wrong between them."""
    between = (
        GOOD.replace('"tf2:auto"', '"tf9:auto"')
        .replace('["worker"]', '["wrker"]')
        .replace("{python}", "{pithon}")
    )
    values = (
        between.replace("address", "adress")
        .replace("tf1:2222", "tf1: 2222")
        .replace('"chief"', '"chef"')
    )
    assert [(p.key, p.line) for p in problems(values)] == [
        ("hosts.tf1.adress", 5),
        ("jobs.ps.tasks[0]", 11),
        ("run.success", 18),
    ]
    assert [(p.key, p.line) for p in problems(between)] == [
        ("jobs.worker.tasks[1]", 14),
        ("run.command[0]", 17),
        ("start.order[2][0]", 21),
    ]


def test_one_mistake_does_not_bring_up_others() -> None:
    """A misspelled key that would be needed, or a broken host, is told once."""
    for old, new in (
        ('tasks = ["tf1:2222"]', 'task = ["tf1:2222"]'),
        ("command =", "comand ="),
        ('ssh = "root@10.77.0.1:22"', "ssh = 3"),
        ('"root@10.77.0.2"', '"root@10.77 .0.2"'),
        ('tasks = ["tf2:2222", "tf2:auto"]', "tasks = 3"),
    ):
        assert len(problems(changed(old, new))) == 1, new


def test_lines_are_right_in_every_way_of_writing() -> None:
    """Dotted keys, quoted keys, inline tables, lists and texts over several lines, CRLF."""
    text = textwrap.dedent("""\
        # a comment with [brackets] and "quotes"
        run.command = [
            "a",   # not "b"
            '''
        x ] " ''',
            "{nix}",
        ]
        hosts = {tf1 = { ssh = "tf1",
            gpus = 2 } }
        jobs."ps" . tasks = [
            "tf1:1", "tf1:2",

            "tf1:2" ]
        [jobs.worker]
        tasks = ["tf1:3"]
        env.A = \"\"\"
        {nix}\"\"\"
        env.B = "{nix}"
        """).replace('"tf1",\n    ', '"tf1", ')
    expected = [
        ("run.command[2]", 6),
        ("jobs.ps.tasks[2]", 12),
        ("jobs.worker.env.A", 15),
        ("jobs.worker.env.B", 17),
    ]
    assert [(p.key, p.line) for p in problems(text)] == expected
    assert [(p.key, p.line) for p in problems(text.replace("\n", "\r\n"))] == expected


def test_a_file_without_hosts_or_name_is_enough() -> None:
    """Everything runs on this machine, and the file's name is the cluster's."""
    text = '[jobs.worker]\ntasks = ["localhost:auto"]\ncommand = ["true"]'
    assert loads(text, "my first cluster.toml", Path("/")).name == "my-first-cluster"


def test_an_empty_file_says_what_it_needs() -> None:
    (problem,) = problems("")
    assert "[jobs.worker]" in problem.message


@pytest.mark.parametrize("table", ["[run]", "[jobs.worker]"])
def test_a_word_that_would_be_too_long_with_all_addresses_is_named(table: str) -> None:
    """Linux would refuse to start the tasks; the length is that after the placeholders."""
    tasks = ", ".join(f'"far:{number}"' for number in range(1, 300))
    text = f'[hosts.far]\nssh = "far"\naddress = "{".".join(["t" * 60] * 4)}"\n'
    text += f'[run]\nframework = "none"\ncommand = ["true"]\n[jobs.worker]\ntasks = [{tasks}]\n'
    text = text.replace(table, f'{table}\nenv = {{ ALL = "{{worker_hosts}} {{worker_hosts}}" }}')
    found = {p.key: p.message for p in problems(text)}
    assert "bytes with all addresses" in found[f"{table[1:-1]}.env.ALL"]


def test_restarts_of_one_job_where_all_start_again() -> None:
    """A number that would have no effect is refused, with the one that holds."""
    text = changed("[jobs.worker]", "[jobs.worker]\nmax_restarts = 9")
    for rule in ("stop", "keep", "restart"):
        loads(text.replace("[run]", f'[run]\non_failure = "{rule}"'), "cluster.toml", Path("/"))
    (problem,) = problems(text.replace("[run]", '[run]\non_failure = "restart-all"'))
    assert (problem.key, problem.line, problem.found) == ("jobs.worker.max_restarts", 14, "9")
    assert "at most 3 times (max_restarts in [run])" in problem.message


def test_more_gpus_than_the_host_has() -> None:
    """GPUs that the file asks for must be there when the file says how many there are."""
    text = changed('ssh = "root@10.77.0.2"', 'ssh = "root@10.77.0.2"\ngpus = 3')
    (problem,) = problems(text.replace("[jobs.worker]", "[jobs.worker]\ngpus = 2"))
    assert (problem.key, problem.line) == ("jobs.worker.gpus", 15)
    assert "4 GPUs" in problem.message


# Cluster files that are cut, hostile, odd, unreadable or huge.


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


# Addresses in cluster files: machines of several names, this machine among others, IPv6.


def test_two_names_of_one_machine_share_its_ports() -> None:
    """A port used through two host names with the same SSH destination is found."""
    text = changed("10.77.0.2", "10.77.0.1:22").replace('"tf2:2222", ', '"tf1:9", "tf2:2222", ')
    (problem,) = problems(text)
    assert (problem.key, problem.line) == ("jobs.worker.tasks[1]", 14)
    assert "same machine" in problem.message


def test_two_hosts_of_one_address_are_told_apart() -> None:
    """Hosts behind one name with different SSH ports need addresses of their own."""
    text = GOOD.replace('"root@10.77.0.2"', '"root@10.77.0.1:2022"').replace('address = "tf1"', "")
    (problem,) = problems(text)
    assert problem.key == "jobs.worker.tasks[0]"
    assert "10.77.0.1:2222" in problem.message
    assert "address in [hosts.tf2]" in problem.message


def test_localhost_among_others_needs_an_address() -> None:
    """With an address for this machine, local and remote tasks may be mixed; a helper may be
    here without one, for nobody calls it."""
    text = changed("tf1:2222", "localhost:2222")
    assert loads(f'{text}\n[hosts.localhost]\naddress = "desk"', "c", Path("/"))
    helper = '\n[jobs.board]\ntasks = ["localhost:6006"]\nin_cluster = false\n'
    assert loads(GOOD + helper, "c", Path("/"))


def test_servers_on_ports_of_this_machine_are_one_machine_only_where_the_file_says_so() -> None:
    """SSH servers behind ports of the loopback are mostly tunnels to other machines, each of which
    is 127.0.0.1 to itself; an address that the file gives says that they are not."""
    text = GOOD.replace("10.77.0.1:22", "127.0.0.1:2201").replace("10.77.0.2", "127.0.0.1:2202")
    text = text.replace('address = "tf1"\n', "").replace(
        'tasks = ["tf1:2222"]', 'tasks = ["tf1:1"]'
    )
    first, second = problems(text)
    assert (first.key, second.key) == ("hosts.tf1.ssh", "hosts.tf2.ssh")
    assert "127.0.0.1 means another machine on tf2" in first.message
    text = text.replace('2201"', '2201"\naddress = "127.0.0.1"')
    text = text.replace('2202"', '2202"\naddress = "127.0.0.1"')
    assert loads(text, "c", Path("/")).address("tf2") == "127.0.0.1"


def test_ipv6_works() -> None:
    """IPv6 literals in brackets are hosts, addresses and SSH destinations."""
    text = (
        GOOD.replace("[hosts.tf1]", '[hosts."fd00::1"]')
        .replace("root@10.77.0.1:22", "root@[fd00::1]:22")
        .replace('"tf1"', '"[fd00::1]"')
        .replace("tf1:2222", "[fd00::1]:2222")
    )
    cluster = loads(text, "c", Path("/"))
    assert cluster.address("fd00::1") == "fd00::1"
    assert str(cluster.jobs["ps"].tasks[0]) == "[fd00::1]:2222"
    assert str(cluster.hosts["fd00::1"].ssh) == "root@[fd00::1]:22"


# A cluster file with nearly every key: what the documents promise is read as they say.


def test_the_example_is_read() -> None:
    """Every value of the documented example arrives where it belongs."""
    cluster = load(CLUSTERS / "example.toml")
    tf1 = cluster.hosts["tf1"]
    assert tf1.ssh == SshDestination("root", "10.77.0.1", 22)
    assert (tf1.identity, tf1.address, tf1.gpus) == ("~/.ssh/id_ed25519", "tf1", 2)
    assert cluster.jobs["worker"].tasks == (TaskAddress("tf2", 2222), TaskAddress("tf2", None))
    assert cluster.jobs["tensorboard"].forward and not cluster.jobs["tensorboard"].in_cluster
    assert cluster.run.lease == 600.0
    assert cluster.start.ready == {"ps": PortListens(), "tensorboard": ProcessStarted()}
    assert cluster.metrics.total == 20000
    plan = make_plan(cluster, "r")
    assert [[str(task) for task in stage] for stage in plan.stages] == [
        ["ps:0"],
        ["worker:0"],
        ["worker:1"],
        ["tensorboard:0"],
    ]


def test_all_further_keys_are_read() -> None:
    cluster = load(CLUSTERS / "more.toml")
    assert cluster.jobs["a"].env == {"B": "2", "C": "3"}
    assert cluster.run.on_hangup is OnHangup.DETACH
    assert cluster.run.env_from == ("TOKEN",)
    assert make_plan(cluster, "r").task(TaskId("a", 0)).address == "desk:auto"


def test_what_is_left_out_has_the_documented_default() -> None:
    run = loads('[jobs.a]\ntasks = ["localhost:1"]\ncommand = ["a"]', "c", Path("/")).run
    assert (run.workdir, run.logdir) == (".", "~/tfmux-logs/{name}/{run_id}")
    assert (run.success, run.framework.success) == (None, Success.CHIEF)
    assert run.on_failure is OnFailure.STOP
    assert (run.on_disconnect, run.max_restarts) == (OnDisconnect.STOP, 3)
    assert run.on_hangup is OnHangup.KILL
    assert (run.lease, run.grace, run.finish_timeout) == (600.0, 10.0, 60.0)
    assert run.log_limit == DEFAULT_LOG_LIMIT == 10 * 2**30


# Addresses, destinations and placeholders: what is read, and what is said otherwise.


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("tf1", None, "tf1", None),
        ("my-alias_2", None, "my-alias_2", None),
        ("root@tf1:22", "root", "tf1", 22),
        ("a.b@corp.example@10.0.0.1", "a.b@corp.example", "10.0.0.1", None),
        ("root@[fd00::1]", "root", "fd00::1", None),
        ("[fe80::1%eth0]:2022", None, "fe80::1%eth0", 2022),
    ],
)
def test_ssh_destinations(text: str, user: str | None, host: str, port: int | None) -> None:
    """Each form is read and written back the same."""
    destination = SshDestination.parse(text)
    assert destination == SshDestination(user, host, port)
    assert str(destination) == text


@pytest.mark.parametrize(
    "text", ["", "@tf1", "root@", "a b@tf1", "tf1:", "tf1:0", "x:1:2", "[fd00::1", "-oProxy=x", "é"]
)
def test_bad_ssh_destinations(text: str) -> None:
    with pytest.raises(ValueError, match=" "):
        SshDestination.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """What is read is written back the same; what is not is refused by `ValueError` alone."""
    for parse in (TaskAddress.parse, SshDestination.parse, parse_address, parse_jump):
        try:
            read = parse(text)
        except ValueError as error:
            assert str(error)
        else:
            again = str(read)
            assert not any(c.isspace() or c in "'\"$;&|<>(){}`" for c in again)
            assert str(parse(again)) == again


def test_jump_hosts() -> None:
    """One or several, in the order of the way."""
    assert parse_jump("a@b:22,c") == "a@b:22,c"
    with pytest.raises(ValueError, match="empty"):
        parse_jump("a,")


@pytest.mark.parametrize(
    "name", ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"]
)
def test_names_that_mean_oneself(name: str) -> None:
    """Whatever a host understands as itself is of no use to another one."""
    assert is_loopback(name)
    assert not is_loopback("localhost1")


@given(st.text(max_size=30))
def test_literal_braces_come_back(text: str) -> None:
    assert expand(text.replace("{", "{{").replace("}", "}}")) == text


def test_an_unknown_placeholder_is_never_left_in() -> None:
    """Expanding what was not checked fails instead of handing a brace to a task."""
    for text in ("{x}", "{", "}", "{}"):
        with pytest.raises(KeyError):
            expand(text, {"y": "1"})


def test_the_first_mapping_wins() -> None:
    """A task's own values go before what all tasks share."""
    assert expand("{a}{b}", {"a": "1"}, {"a": "2", "b": "{a}"}) == "1{a}"


def test_the_nearest_word() -> None:
    """A word far from all is answered with something else."""
    assert nearest("wroker", ["ps", "worker"]) == 'did you mean "worker"?'
    assert nearest("x" * 10_000, ["ps"], "no") == "no"


def test_models_made_in_code_are_checked_too() -> None:
    """The editor's values go through the same fields; enums and dataclasses may be given."""
    cluster = ClusterModel.model_validate(
        {
            "name": "n",
            "jobs": {"a": {"tasks": [TaskAddress("localhost", 1)], "ready": PortListens()}},
            "run": {"success": Success.ALL},
        }
    )
    assert cluster.model_dump(mode="json", exclude_unset=True) == {
        "name": "n",
        "jobs": {"a": {"tasks": ["localhost:1"], "ready": "listening"}},
        "run": {"success": "all"},
    }
    assert cluster == ClusterModel.model_validate(cluster.model_dump(mode="json"))


# `[defaults.host]`: values that the hosts of a cluster file have in common.

JOBS = """\
[jobs.worker]
tasks = ["tf1:2222", "tf2:2222", "tf3:2222"]
[run]
command = ["{python}", "train.py"]
setup = "of run"
env = { A = "run", B = "run" }
"""
HOSTS = """\
[hosts.tf1]
ssh = "tf1"
[hosts.tf2]
ssh = "me@tf2:22"
python = "/own/python"
setup = ""
env = { B = "tf2", C = "tf2" }
[hosts.tf3]
via = ["podman", "exec", "-i", "tf3"]
address = "tf3"
"""
DEFAULTS = """\
[defaults.host]
python = "/opt/tf/bin/python"
user = "root"
identity = "key"
jump = "gate"
setup = "of all hosts"
shell = "login"
gpus = 2
env = { B = "all", C = "all" }
"""


def read(text: str) -> ClusterModel:
    """A text without a problem."""
    return loads(text, "cluster.toml", Path("/srv"))


def test_what_is_given_once_holds_for_every_host_that_says_nothing_else() -> None:
    """A host's own value wins, an empty one, too; variables are merged; options of SSH are for
    hosts with ssh."""
    text = JOBS + HOSTS + DEFAULTS
    jsonschema.validate(tomllib.loads(text), json_schema())
    plan = make_plan(read(text), "run-1")
    pythons = {host.name: host.python for host in plan.hosts}
    common = "/opt/tf/bin/python"
    assert pythons == {"tf1": common, "tf2": "/own/python", "tf3": common}
    assert [task.argv[0] for task in plan.tasks] == list(pythons.values())
    assert [task.setup for task in plan.tasks] == ["of all hosts", "", "of all hosts"]
    assert {task.shell for task in plan.tasks} == {Shell.LOGIN}
    seen = [[task.env[name] for name in "ABC"] for task in plan.tasks]
    assert seen == [["run", "all", "all"], ["run", "tf2", "tf2"], ["run", "all", "all"]]
    ways = [host.ssh for host in plan.hosts]
    assert ways[0] is not None and ways[1] is not None and ways[2] is None
    assert [(way.user, way.jump, way.identity) for way in ways[:2] if way is not None] == [
        ("root", "gate", "/srv/key"),
        ("me", "gate", "/srv/key"),
    ]
    assert [host.gpus for host in plan.hosts] == [2, 2, 2]


def test_a_job_wins_over_its_hosts() -> None:
    """As its variables do."""
    job = '[jobs.worker]\nsetup = "of the job"\nshell = "none"'
    plan = make_plan(read(JOBS.replace("[jobs.worker]", job) + HOSTS + DEFAULTS), "run-1")
    assert {(task.setup, task.shell) for task in plan.tasks} == {("of the job", Shell.NONE)}


def test_this_machine_has_them_where_it_has_a_table() -> None:
    """Its own Python else."""
    text = JOBS.replace("tf3:", "localhost:") + HOSTS.partition("[hosts.tf3]")[0] + DEFAULTS
    cluster = read(text + '[hosts.localhost]\naddress = "here"\n')
    assert cluster.hosts["localhost"].python == "/opt/tf/bin/python"
    assert cluster.hosts["localhost"].user is None


@pytest.mark.parametrize(
    ("defaults", "key", "said"),
    [
        ('pyhton = "/p"', "defaults.host.pyhton", 'did you mean "python"'),
        ('ssh = "tf1"', "defaults.host.ssh", "belongs in [hosts.NAME]"),
        ('python = "bin/python"', "defaults.host.python", "write an absolute path"),
        ('user = "a b"', "defaults.host.user", 'write such as "root"'),
        ('shell = "bash"', "defaults.host.shell", 'write "none" or "login"'),
        ("gpus = -1", "defaults.host.gpus", "from 0 on"),
        ('env = { A = "{nope}" }', "defaults.host.env.A", "unknown placeholder"),
        ('env = { TF_CONFIG = "x" }', "defaults.host.env.TF_CONFIG", "tfmux sets TF_CONFIG"),
        ('python = "~/python"', "defaults.host.python", '"~/" is not expanded through via'),
    ],
)
def test_a_bad_default_is_named_once_where_it_stands(defaults: str, key: str, said: str) -> None:
    """Not at each of the hosts, which have no such line."""
    text = f"{JOBS}{HOSTS}[defaults.host]\n{defaults}\n"
    (problem,) = problems(text)
    assert problem.key == key and said in problem.message
    assert problem.line == len(text.splitlines())


def test_a_host_s_own_value_is_named_at_the_host() -> None:
    """Although the defaults have the key, too."""
    own = HOSTS.replace('B = "tf2"', 'B = "{nope}"')
    (problem,) = problems(JOBS + own + DEFAULTS)
    assert problem.key == "hosts.tf2.env.B"


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('[defaults]\npython = "/p"\n', "defaults.python", "belongs in [defaults.host]"),
        ('[defaults.hosts]\npython = "/p"\n', "defaults.hosts", 'did you mean "host"'),
        ('[default.host]\npython = "/p"\n', "default", 'did you mean "defaults"'),
        ("[defaults]\nhost = 3\n", "defaults.host", "write a table: [defaults.host]"),
    ],
)
def test_a_wrong_table_is_named(text: str, key: str, said: str) -> None:
    (problem,) = problems(JOBS + HOSTS + text)
    assert problem.key == key and said in problem.message and problem.line


@pytest.mark.parametrize(
    ("tasks", "table", "said"),
    [
        ("localhost:1", "", "the file has no [hosts.NAME]"),
        ("node0:1", '[slurm]\nnodes = 1\ntime = "1"\n', "the hosts come from Slurm"),
    ],
)
def test_defaults_that_no_host_would_have_are_refused(tasks: str, table: str, said: str) -> None:
    """They would be ignored without a word."""
    text = f'[jobs.worker]\ntasks = ["{tasks}"]\ncommand = ["x"]\n{table}{DEFAULTS}'
    (problem,) = problems(text)
    assert problem.key == "defaults.host" and said in problem.message and problem.line


def test_a_key_file_that_is_missing_is_named_at_the_defaults(tmp_path: Path) -> None:
    """Before a launch."""
    path = tmp_path / "c.toml"
    path.write_text(JOBS + HOSTS + DEFAULTS)
    with pytest.raises(ClusterFileError, match=r"defaults\.host\.identity: no such file"):
        load(path, for_launch=True)
