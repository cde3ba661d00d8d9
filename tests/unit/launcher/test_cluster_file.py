"""Reading cluster files: what is wrong is named with its key, its line and what to write."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from tests.support.cluster_texts import GOOD, changed, problems
from tui.main import main


def test_the_good_file_is_read() -> None:
    """The file that all bad ones below are made from has nothing wrong."""
    cluster = loads(GOOD, "cluster.toml", Path("/"))
    assert [str(task) for task in cluster.jobs["worker"].tasks] == ["tf2:2222", "tf2:auto"]
    assert str(cluster.hosts["tf1"].ssh) == "root@10.77.0.1:22"
    assert cluster.address("tf1") == "tf1"
    assert cluster.address("tf2") == "10.77.0.2"


# What is changed in the good file, and the key, line and part of the advice that must come.
BAD = {
    "unknown top-level table": ("[run]", "[runs]", "runs", 16, 'did you mean "run"'),
    "unknown key in a host": ("address =", "adress =", "hosts.tf1.adress", 5, '"address"'),
    "unknown key in a job": (
        '[jobs.ps]\ntasks = ["tf1:2222"]',
        '[jobs.ps]\ntasks = ["tf1:2222"]\nforwards = true',
        "jobs.ps.forwards",
        12,
        'did you mean "forward"',
    ),
    "unknown key in run": ("success =", "succes =", "run.succes", 18, 'did you mean "success"'),
    "unknown key with no neighbour": ("success =", "zzz =", "run.zzz", 18, "the keys here are"),
    "job outside jobs": ("[jobs.ps]", "[ps]", "ps", 10, "[jobs.ps]"),
    "missing port": ("tf1:2222", "tf1", "jobs.ps.tasks[0]", 11, 'write "tf1:2222"'),
    "empty port": ("tf1:2222", "tf1:", "jobs.ps.tasks[0]", 11, "1 to 65535 or auto"),
    "port 0": ("tf1:2222", "tf1:0", "jobs.ps.tasks[0]", 11, "1 to 65535 or auto"),
    "port 65536": ("tf1:2222", "tf1:65536", "jobs.ps.tasks[0]", 11, "out of range"),
    "port abc": ("tf1:2222", "tf1:abc", "jobs.ps.tasks[0]", 11, "a number from 1 to 65535"),
    "negative port": ("tf1:2222", "tf1:-1", "jobs.ps.tasks[0]", 11, "a number from 1 to 65535"),
    "port in other digits": ("tf1:2222", "tf1:٢٢", "jobs.ps.tasks[0]", 11, "a number from"),
    "blank inside": ("tf1:2222", "tf1: 2222", "jobs.ps.tasks[0]", 11, 'write "tf1:2222"'),
    "blank in front": ("tf1:2222", " tf1:2222", "jobs.ps.tasks[0]", 11, 'write "tf1:2222"'),
    "newline inside": ("tf1:2222", "tf1\\n:2222", "jobs.ps.tasks[0]", 11, 'write "tf1:2222"'),
    "quotes inside": ("tf1:2222", "'tf1:2222'", "jobs.ps.tasks[0]", 11, 'write "tf1:2222"'),
    "empty address": ('"tf1:2222"', '""', "jobs.ps.tasks[0]", 11, "it is empty"),
    "a flag as host": ("tf1:2222", "-tf1:2222", "jobs.ps.tasks[0]", 11, "begin with '-'"),
    "a shell command as host": ("tf1:2222", "$(reboot):1", "jobs.ps.tasks[0]", 11, "only letters"),
    "a path as host": ("tf1:2222", "../..:1", "jobs.ps.tasks[0]", 11, "only letters"),
    "non-ASCII host": ("tf1:2222", "rëchner:1", "jobs.ps.tasks[0]", 11, "xn--"),
    "a URL": ("tf1:2222", "grpc://tf1:1", "jobs.ps.tasks[0]", 11, 'leave out the "grpc://"'),
    "bare IPv6": ("tf1:2222", "fd00::1:2222", "jobs.ps.tasks[0]", 11, '"[fd00::1]:2222"'),
    "broken IPv6": ("tf1:2222", "[fd00::g]:22", "jobs.ps.tasks[0]", 11, "not an IPv6 address"),
    "broken IPv4": ("10.77.0.2", "10.77.0.256", "hosts.tf2.ssh", 8, "not an IPv4 address"),
    "undefined host": ("tf1:2222", "tf1a:2222", "jobs.ps.tasks[0]", 11, 'did you mean "tf1"'),
    "loopback by number": ("tf1:2222", "127.0.0.1:1", "jobs.ps.tasks[0]", 11, "use localhost"),
    "tasks as one text": (
        '["tf2:2222", "tf2:auto"]',
        '"tf2:2222,tf2:auto"',
        "jobs.worker.tasks",
        14,
        '["tf2:2222", "tf2:auto"]',
    ),
    "tasks as a number": ('["tf1:2222"]', "2", "jobs.ps.tasks", 11, "a list of host:port"),
    "a task as a number": ('["tf1:2222"]', "[2222]", "jobs.ps.tasks[0]", 11, "in quotes"),
    "no tasks": ('["tf1:2222"]', "[]", "jobs.ps.tasks", 11, "no tasks"),
    "tasks missing": ('tasks = ["tf1:2222"]', "", "jobs.ps.tasks", 10, "no tasks"),
    "port twice": ("tf2:auto", "tf2:2222", "jobs.worker.tasks[1]", 14, "used by worker:0"),
    "localhost among others": ("tf1:2222", "localhost:1", "jobs.ps.tasks[0]", 11, "[hosts.loc"),
    "loopback as address": ('"tf1"', '"127.0.0.1"', "hosts.tf1.address", 5, "use for tf1"),
    "port in an address": ('"tf1"', '"tf1:22"', "hosts.tf1.address", 5, "only the name"),
    "ssh command": ("root@10.77.0.1:22", "ssh root@h", "hosts.tf1.ssh", 4, "only the destination"),
    "ssh URL": ("root@10.77.0.1:22", "ssh://root@h", "hosts.tf1.ssh", 4, "user@host"),
    "blank in ssh": ("root@10.77.0.1:22", "root @h", "hosts.tf1.ssh", 4, 'write "root@h"'),
    "flag as user": ("root@10.77.0.1:22", "-oX@h", "hosts.tf1.ssh", 4, "not a user name"),
    "ssh port": ("10.77.0.1:22", "10.77.0.1:ssh", "hosts.tf1.ssh", 4, "1 to 65535"),
    "host without ssh": ('ssh = "root@10.77.0.2"', "", "hosts.tf2", 7, 'ssh = "tf2"'),
    "localhost with ssh": (
        "[jobs.ps]",
        '[hosts.localhost]\nssh = "tf3"\n[jobs.ps]',
        "hosts.localhost.ssh",
        11,
        "has no ssh",
    ),
    "host as a text": (
        '[hosts.tf2]\nssh = "root@10.77.0.2"',
        '[hosts]\ntf2 = "root@10.77.0.2"',
        "hosts.tf2",
        8,
        "[hosts.tf2]",
    ),
    "bad host name": (
        "[jobs.ps]",
        '[hosts."tf 3"]\nssh = "tf3"\n[jobs.ps]',
        'hosts."tf 3"',
        10,
        "only letters",
    ),
    "one GPU, which might be a number": (
        'address = "tf1"',
        'gpus = "2"',
        "hosts.tf1.gpus",
        5,
        'or "2," for the GPU',
    ),
    "GPUs by no id": ('address = "tf1"', 'gpus = "first"', "hosts.tf1.gpus", 5, "nvidia-smi -L"),
    "a GPU twice": ('address = "tf1"', 'gpus = "0,1,0"', "hosts.tf1.gpus", 5, "named twice"),
    "GPUs as a list": ('address = "tf1"', "gpus = [0, 2]", "hosts.tf1.gpus", 5, 'such as "0,2"'),
    "python as a relative path": (
        'address = "tf1"',
        'python = "venv/bin/python"',
        "hosts.tf1.python",
        5,
        "absolute path",
    ),
    "job name with a blank": (
        "[jobs.ps]",
        '[jobs."p s"]\ntasks = ["tf1:9"]\n[jobs.ps]',
        'jobs."p s"',
        10,
        "a letter followed by",
    ),
    "job name with a dash": (
        "[jobs.ps]",
        '[jobs.my-ps]\ntasks = ["tf1:9"]\n[jobs.ps]',
        "jobs.my-ps",
        10,
        "jobs.my_ps",
    ),
    "command as a text": (
        'command = ["{python}", "-m", "trainer", "async", "--job_name={job}"]',
        'command = "python train.py"',
        "run.command",
        17,
        '["python", "train.py"]',
    ),
    "empty command": (
        '["{python}", "-m", "trainer", "async", "--job_name={job}"]',
        "[]",
        "run.command",
        17,
        "the command is empty",
    ),
    "unknown placeholder": ("{python}", "{pythn}", "run.command[0]", 17, "{python}"),
    "unknown job in one": ("{job}", "{hosts.wrker}", "run.command[4]", 17, '"worker"'),
    "unknown task in one": ("{job}", "{port.worker.2}", "run.command[4]", 17, "0 to 1"),
    "single brace": ("{job}", '{\\"a\\": 1}', "run.command[4]", 17, "{{ and }}"),
    "open brace": ("{job}", "{job", "run.command[4]", 17, "write {{"),
    "enum": ('"chief"', '"cheif"', "run.success", 18, 'did you mean "chief"'),
    "NUL in a command": ('"async"', '"a\\u0000"', "run.command[3]", 17, "NUL"),
    "unknown in the order": ('["ps"]', '["pss"]', "start.order[0][0]", 21, 'did you mean "ps"'),
    "task out of the order": ("worker:0", "worker:2", "start.order[1][0]", 21, "worker:0 to wo"),
    "twice in the order": ('["ps"]', '["ps", "ps"]', "start.order[0][1]", 21, "already"),
    "order without stages": (
        '[["ps"], ["worker:0"], ["worker"]]',
        '["ps", "worker"]',
        "start.order",
        21,
        '[["ps"]',
    ),
    "broken TOML": ('"mnist-async"', "mnist", "name", 1, 'write name = "mnist"'),
    "open quotes": ('ssh = "root@10.77.0.2"', 'ssh = "root', "hosts.tf2.ssh", 8, "closing quote"),
    "open bracket": ('["tf1:2222"]', '["tf1:2222"', "jobs.ps.tasks[0]", 11, "not closed"),
    "no value": ('"mnist-async"', "", "name", 1, "value is missing"),
    "bare words": ('["tf1:2222"]', "[tf1:2222]", "jobs.ps.tasks[0]", 11, 'write "tf1:2222"'),
    "nothing that TOML knows": ('"mnist-async"', "]", "name", 1, "not valid TOML: invalid value"),
    "open braces": ("address =", "x = { a = 1,\naddress =", "hosts.tf1.x.a", 5, "on one line"),
    "no equals sign": ("name =", "name", "name", 1, "write key = value"),
    "table twice": ("[hosts.tf2]", "[hosts.tf1]", "hosts.tf1", 7, "defined twice"),
    "key twice": ("address =", "ssh =", "hosts.tf1.ssh", 5, "defined twice"),
    "bad name": ('"mnist-async"', '"a/../b"', "name", 1, "letters, digits"),
    "empty name": ('"mnist-async"', '""', "name", 1, "it is empty"),
    "long name": ('"mnist-async"', f'"{"x" * 10_000}"', "name", 1, "at most 64"),
}
# What is put into a table of the good file, and the key and part of the advice that must come.
IN_RUN = {
    "exclude without a pattern": ('exclude = ["*.ckpt", "!"]', "exclude[1]", ".gitignore"),
    "exclude by a broken range": ('exclude = ["[z-a]"]', "exclude[0]", 'such as "*.ckpt"'),
    "key of another table": ("timeout = 3", "timeout", "[start]"),
    "placeholder in itself": ('logdir = "/logs/{logdir}"', "logdir", "not available here"),
    "task's placeholder in workdir": ('workdir = "w/{job}"', "workdir", "not available here"),
    "another task's placeholder in workdir": (
        'workdir = "w/{host.ps.0}"',
        "workdir",
        "not available here",
    ),
    "index of a job of one task": ('logdir = "/{host.ps.1}"', "logdir", "indices of ps are 0"),
    "relative log directory": ('logdir = "logs"', "logdir", "absolute"),
    "another user's home": ('logdir = "~bob/x"', "logdir", "~/"),
    "negative lease": ("lease = -1", "lease", "from 1"),
    "endless lease": ("lease = inf", "lease", "not inf"),
    "negative grace": ("grace = -0.5", "grace", "from 0"),
    "grace with a unit": ('grace = "10s"', "grace", "or a unit"),
    "true as a number": ("max_restarts = true", "max_restarts", "a whole number"),
    "flag as a text": ('pty = "yes"', "pty", "true or false"),
    "NUL": ('setup = "a\\u0000b"', "setup", "NUL"),
    "variable's name": ('env = { "A B" = "1" }', 'env."A B"', "letters"),
    "variable of ours": ('env = { TFMUX_TASK = "1" }', "env.TFMUX_TASK", "are reserved"),
    "variable's value": ("env = { A = 0.5 }", "env.A", '"0.5"'),
    "TF_CONFIG": ('env = { TF_CONFIG = "" }', "env.TF_CONFIG", "tfmux sets"),
    "True": ("pty = True", "pty", "write true"),
}
IN_START = {
    "an unknown key": ("warmth = true", "warmth", "warm"),
    "modules without a list": ('warm = "torch"', "warm", '["torch"]'),
    "a module that is a path": ('warm = ["./torch.py"]', "warm", "names of modules"),
    "readiness": ('ready = { ps = "listen" }', "ready.ps", '"listening"'),
    "readiness of nobody": ('ready.pss = "started"', "ready.pss", '"ps"'),
    "readiness by a broken regex": (
        "ready.ps = { log = '(' }",
        "ready.ps",
        "not a regular expression",
    ),
    "readiness by a look-ahead": (
        "ready.ps = { log = 'up(?!loading)' }",
        "ready.ps",
        "without look-ahead, look-behind, back-references",
    ),
    "readiness by a back-reference": (r"ready.ps = { log = '(a)\1' }", "ready.ps", "RE2"),
    "readiness before the start": ("ready.ps = { after = -1 }", "ready.ps", "from 0"),
}
IN_METRICS = {
    "metrics regex": ("pattern = 'a('", "pattern", "reg"),
    "metrics without step": ("pattern = 'a (?P<loss>.)'", "pattern", "named step"),
    "metrics total": ("total = 0", "total", "from 1"),
}
for table, at, old, header, cases in (
    ("run", 18, "success = ", "", IN_RUN),
    ("start", 21, "order = ", "", IN_START),
    ("metrics", 21, "[start]\norder", "[metrics]\n", IN_METRICS),
):
    for name, (text, key, advice) in cases.items():
        BAD[name] = (old, f"{header}{text} #", f"{table}.{key}", at, advice)


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
    """And one sees that it is."""
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
    """An empty file has no jobs."""
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


def test_one_chief() -> None:
    """A cluster with two chiefs is refused at the second."""
    (problem,) = problems(changed("[jobs.worker]", "[jobs.chief]").partition("[start]")[0])
    assert (problem.key, problem.line) == ("jobs.chief.tasks[1]", 14)


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
