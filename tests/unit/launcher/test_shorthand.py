"""Clusters as people write them: what is understood, what is refused, and what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.host_names import missing_hosts, next_like
from launcher.cluster.shorthand import (
    ShorthandError,
    split,
    understand,
    understand_file,
)
from tests.support.shorthand_texts import TEXTS, TRIED_AFTERWARDS, TRIED_LAST, Text, shown


@pytest.mark.parametrize(
    "text", (*TEXTS, *TRIED_AFTERWARDS, *TRIED_LAST), ids=lambda text: text.form
)
def test_a_text_is_understood_or_refused(text: Text) -> None:
    """Given a text in the form of another program, when it is read, then its jobs or hosts come
    out, and the sentence says them; or it is refused whole, and the sentence says why."""
    if not text.jobs and not text.hosts:
        with pytest.raises(ShorthandError) as refusal:
            understand(text.text)
        assert text.refused in str(refusal.value)
        assert str(refusal.value).isprintable()
        return
    understood = understand(text.text)
    assert shown(understood) == (text.jobs or text.hosts)
    for part in text.said:
        assert part in understood.sentence
    assert understood.sentence.isprintable()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("--ps_hosts=tf1:2222 --worker_hosts=tf[1-3]:2223", "1 ps and 3 workers on tf1–tf3, ports"),
        ("root@tf[1-4]", "4 hosts, tf1–tf4 as root"),
        ("tf1 slots=2\ntf2 slots=2", "2 hosts, tf1, tf2, 2 slots each"),
        ("me@tf1\ntf2", "2 hosts, me@tf1, tf2"),
        ("localhost", "1 host, this machine"),
        ("torchrun --nproc-per-node=gpu t.py", "this machine; gpu is not a number of tasks: using"),
        (
            '{"workers": ["tf1:1", "tf2:1"], "gpu": ["tf3:1", "tf4:1"], "ps": ["tf5:1"]}',
            "1 ps, 2 workers and 2 of gpu on tf1–tf5",
        ),
        ("tf1 # fast\n# slow\ntf2", "2 hosts, tf1, tf2; 2 lines after # are left out"),
        (
            "\n".join(f"h{n}x" for n in range(30)),
            "30 hosts, h0x, h1x, h2x, h3x, h4x, h5x, h6x, h7x and 22",
        ),
    ],
)
def test_the_sentence(text: str, sentence: str) -> None:
    """Given a text, when it was understood, then one sentence says how many, where, and what was
    left out."""
    assert sentence in understand(text).sentence


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("mpirun -np 2 -H tf1,tf2 -x A python t.py '{}' > log", ("python", "t.py", "{{}}")),
        ("torchrun --nproc_per_node 2 t.py --lr 1", ("{python}", "t.py", "--lr", "1")),
        ("torchrun --nproc_per_node 2 -m pkg.t x", ("{python}", "-m", "pkg.t", "x")),
        (
            "A=1 python3 t.py --ps_hosts=tf1:1 --worker_hosts tf2:1 --job_name=ps --task_index=0 &",
            (
                "{python}", "t.py", "--ps_hosts={ps_hosts}", "--worker_hosts", "{worker_hosts}",
                "--job_name={job}", "--task_index={index}",
            ),
        ),
    ],
)  # fmt: skip
def test_the_command_behind_a_launcher(text: str, command: tuple[str, ...]) -> None:
    """Given a command line with a program, when it is read, then the program is the command, with
    placeholders for what each task gets, and literal braces."""
    assert understand(text).command == command


def test_names_that_are_known_are_hosts() -> None:
    with pytest.raises(ShorthandError, match="'alpha' is not a host"):
        understand("alpha beta")
    assert shown(understand("alpha beta", ("alpha", "beta"))) == "alpha*1 beta*1"
    assert shown(understand("alpha, beta")) == "alpha*1 beta*1"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tf1:2222,tf2:2222", ["tf1:2222", "tf2:2222"]),
        (" tf1:2222 ;\n tf2:2222, ", ["tf1:2222", "tf2:2222"]),
        ("tf[1-3]:2222", ["tf1:2222", "tf2:2222", "tf3:2222"]),
        ("tf{1..2}:2222", ["tf1:2222", "tf2:2222"]),
        ("tf[08-10,12]:1", ["tf08:1", "tf09:1", "tf10:1", "tf12:1"]),
        ("tf1:[7-8]", ["tf1:7", "tf1:8"]),
        ("localhost:auto*3", ["localhost:auto"] * 3),
        ("[fd00::1]:2222, [fd00::2]:2222", ["[fd00::1]:2222", "[fd00::2]:2222"]),
        ("['tf1:1', 'tf2:2']", ["tf1:1", "tf2:2"]),
        ('["tf1:1"]', ["tf1:1"]),
        ("", []),
        ("$(reboot) ../.. -x tf1:abc", ["$(reboot)", "../..", "-x", "tf1:abc"]),
    ],
)
def test_a_line_of_tasks(line: str, found: list[str]) -> None:
    """Given a form's line of tasks, when it is split, then what is no task stays for the checks."""
    assert split(line) == found


@pytest.mark.parametrize(
    "line", ["tf[5-1]:1", "tf[1-99999]:1", "tf1:auto*99999", "a[0-99]b[0-99]c*9"]
)
def test_a_line_for_too_many_is_refused(line: str) -> None:
    for read in (split, understand):
        with pytest.raises(ShorthandError):
            read(line)


@pytest.mark.parametrize("text", ["{", '{"cluster": 3}', '{"cluster": {"ps": [1]}}', "{" * 10_000])
def test_a_broken_tf_config_is_explained(text: str) -> None:
    """Given a broken TF_CONFIG, when it is read, then the refusal says what one looks like."""
    with pytest.raises(ShorthandError, match=r"TF_CONFIG|not a list"):
        understand(text)


@given(st.text(max_size=60))
def test_any_text_is_understood_or_explained(text: str) -> None:
    """Given any text, when it is read, then nothing but a refusal with a sentence is raised."""
    try:
        assert understand(text).sentence
    except ShorthandError as error:
        assert str(error)


_PIECES = st.sampled_from(
    "tf1 tf2:2222 me@tf3 [1-3] --ps_hosts= WORKER_HOSTS= { } [ ] ( ) \" ' # \\ , ; : = $A ${B} "
    '$( \n slots= TF_CONFIG "cluster": ssh mpirun -H for in done kind: services: ps| *3'.split(" ")
)


@given(st.lists(_PIECES, max_size=25).map(" ".join))
def test_any_pieces_are_understood_or_explained(text: str) -> None:
    try:
        assert understand(text).sentence
    except ShorthandError as error:
        assert str(error)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "{",
        "{}",
        "[",
        "a=",
        "--ps_hosts=",
        " \n",
        "#a\n",
        "t[1]",
        '{\\"',
        "a ",
        "x='",
        "PS=$A ",
        "job {",
    ],
)
def test_a_long_text_of_one_piece(piece: str) -> None:
    """Given a long text of one piece, when it is read, then it is understood or refused within the
    time that a test of this folder may take."""
    try:
        assert understand("b" + piece * (20_000 // len(piece))).sentence
    except ShorthandError as error:
        assert str(error)


def test_a_text_that_is_too_long() -> None:
    with pytest.raises(ShorthandError, match="larger than 1 MiB"):
        understand("x" * ((1 << 20) + 1))


def test_missing_hosts_and_the_next_in_a_series() -> None:
    """Given tasks, then localhost is never missing; a series goes on where its number stopped."""
    tasks = {"ps": ["nonsense", "tf1:1", "localhost:auto"], "worker": ["tf2:1", "tf1:2"]}
    assert missing_hosts(tasks, {"tf1": {}}) == ["tf2"]
    assert next_like(["tf1", "tf2"], "tf1") == "tf3"
    assert next_like(["gpu"], "gpu") == "gpu2"
    assert next_like([], "root@10.77.0.9") == "root@10.77.0.10"


# Clusters in Python programs: literals and defaults of flags are values, expressions are not.

DEFAULTS = """
import tensorflow as tf
flags = tf.app.flags
flags.DEFINE_string('ps_hosts', ' tf1:2222', 'such as "tf-ps0:2222,tf-ps1:1111"')
flags.DEFINE_string('worker_hosts', ' tf2:2222,tf3:2222', 'hosts')
FLAGS = flags.FLAGS
"""
ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--ps_hosts', required=True)
parser.add_argument('--worker_hosts', required=True)
args = parser.parse_args()
"""
LISTS = """
import tensorflow as tf
parameter_servers = ["tf1:2222"]
workers = ["tf2:2222",
           "tf3:2222"]
"""
SERVED = """
def main(argv=None):
    ps_hosts = FLAGS.ps_hosts.split(',')
    worker_hosts = FLAGS.worker_hosts.split(',')
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_id)
    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=(FLAGS.task_id == 0)) as session:
        workers = len(worker_hosts)
"""
CLUSTER = "ps=tf1:2222 worker=tf2:2222,tf3:2222"


@pytest.mark.parametrize(
    "text",
    [
        DEFAULTS + SERVED,
        DEFAULTS + SERVED.replace('{"ps": ps_hosts, "worker": worker_hosts}', "dict(ps=ps_hosts)"),
        DEFAULTS + SERVED + "print 'done'\n",  # Python 2
        DEFAULTS + "server = make(ps_hosts=FLAGS.ps_hosts, worker_hosts=args.workers)\n",
        DEFAULTS + "ps_hosts = os.environ.get('PS')\nworker_hosts = conf['workers']\n",
        DEFAULTS + "worker_hosts = FLAGS.worker_hosts if FLAGS.many else []\n",
        ARGUMENTS.replace("required=True", "default='tf1:2222'", 1).replace(
            "required=True", "default='tf2:2222,tf3:2222'"
        )
        + "master = server.target\n",
        LISTS + SERVED,
        LISTS + "self.workers = args.workers\nworkers = self.workers\n",
    ],
)
def test_defaults_and_literals_count(text: str) -> None:
    """Given a program with a cluster of literals, and expressions where it uses them, when it is
    read, then the literals are the cluster."""
    assert shown(understand_file(text, "train.py")) == CLUSTER


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (ARGUMENTS + SERVED, "ps_hosts is FLAGS.ps_hosts.split(',')"),
        (ARGUMENTS + "make(ps_hosts=args.ps_hosts)\n", "ps_hosts is args.ps_hosts"),
        ("import tf\nmake(master=server.target)\n", "master is server.target"),
        ("master = server.target", "master is server.target"),
        ("ps_hosts = conf['ps']\nworker_hosts = read(hosts)", "ps_hosts is conf['ps']"),
        ("import json\nc = tf.train.ClusterSpec(json.load(open('c.json')))", "names no hosts"),
        ("import os\nworker_hosts = os.environ['W']", "worker_hosts is os.environ['W']"),
        (DEFAULTS.replace(" tf1:2222", "").replace(" tf2:2222,tf3:2222", "") + SERVED, "ps_hosts"),
    ],
)
def test_expressions_are_refused_by_name(text: str, named: str) -> None:
    """Given a program of which only running it says the hosts, when it is read, then the refusal
    names the expression."""
    with pytest.raises(ShorthandError) as refusal:
        understand_file(text, "train.py")
    assert named in str(refusal.value)
    assert "only the program knows" in str(refusal.value) or "names no hosts" in named


COMMAND = (
    "python train.py \\\n--job_name='{job}' \\\n--{index}=0 \\\n--ps_hosts='tf1:2222' \\\n"
    "--worker_hosts='tf2:2222,tf3:2222'\n"
)
FILLED = (
    *("{python}", "train.py", "--job_name={job}", "--{index}={index}", "--ps_hosts={ps_hosts}"),
    "--worker_hosts={worker_hosts}",
)


@pytest.mark.parametrize("index", ["task_index", "task_id", "taskid", "task-id", "taskIndex"])
@pytest.mark.parametrize("between", ["\n", "```\n\n```shell\n", "\n# and then\n$ "])
def test_commands_that_are_pasted_together_are_a_cluster(index: str, between: str) -> None:
    """Given the commands of all tasks one after the other, quoted as pages quote them, when they
    are read, then they are one cluster, and its command is the first one with placeholders."""
    jobs = ("ps", "worker", "worker")
    text = between.join(COMMAND.format(job=job, index=index) for job in jobs)
    understood = understand(text)
    assert shown(understood) == CLUSTER
    expected = [word.replace("--{index}", f"--{index}") for word in FILLED]
    assert list(understood.command) == expected


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--taske_id=0", "--taske_id=0", "--taske_id=1"), ["--taske_id=1"]),
        (("--gpu 0", "--gpu 0", "--gpu 1"), ["1"]),
        (("--lr=0.1", "--lr=0.1 --sync", "--lr=0.2"), ["--sync", "--lr=0.2"]),
        (("--lr=0.1", "--lr=0.1", "--lr=0.1"), []),
    ],
)
def test_flags_that_only_other_commands_have_are_told(
    flags: tuple[str, str, str], told: list[str]
) -> None:
    """Given commands pasted together that differ in a flag which no placeholder fills, when they
    are read, then what the command of the cluster lacks is told, and nothing else."""
    commands = [COMMAND.format(job="worker", index="task_id").strip() + f" {own}" for own in flags]
    understood = understand("\n".join(commands))
    assert understood.command[-1] == flags[0].split()[-1]
    assert understood.left_out == tuple(f"{word} of another command is left out" for word in told)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("PS_HOSTS=tf1.example.com\nWORKER_HOSTS=tf2.example.com", "ps=tf1.example.com:auto"),
        ("ps_hosts = tf1.example.com:2222\nworker_hosts = tf2:2222", "ps=tf1.example.com:2222"),
        ("import x\nPS_HOSTS='tf1:1'\nworkers = ('tf2:1', 'tf3:1')", "ps=tf1:1 worker=tf2:1,tf3:1"),
    ],
)
def test_hosts_that_look_like_expressions_stay_hosts(text: str, meant: str) -> None:
    """Given assignments of a shell or of a file of settings, then their values are hosts."""
    assert shown(understand(text)).startswith(meant)
