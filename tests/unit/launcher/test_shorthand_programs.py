"""Clusters in Python programs: literals and defaults of flags are values, expressions are not."""

from __future__ import annotations

import pytest

from launcher.cluster.shorthand import ShorthandError, understand, understand_file
from tests.support.shorthand_texts import shown

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
