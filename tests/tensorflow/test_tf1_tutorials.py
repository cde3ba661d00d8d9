"""Programs in the shape of the tutorials' listings print under `tf1` what the tutorials print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.budgets import variants
from tests.support.command import Up, write
from tests.support.lazily import placer, tf, tfrecord
from tests.support.ports import free_ports
from tests.support.tf1_scripts import tf1
from trainer.data import Split, digits

SHARED = """
import tensorflow as tf

cluster = tf.train.ClusterSpec({"local": ["localhost:PORT0", "localhost:PORT1"]})
first = tf.train.Server(cluster, job_name="local", task_index=0)
second = tf.train.Server(cluster, job_name="local", task_index=1)
v = tf.Variable(0.0, name="v")
s, t = tf.Session(first.target), tf.Session(second.target)
s.run(tf.global_variables_initializer())
t.run(tf.global_variables_initializer())
s.run(v.assign_add(1.0))
print("shared", s.run(v), t.run(v))

def places(session, fetched):
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    seen = tf.RunMetadata()
    session.run(fetched, options=options, run_metadata=seen)
    return " ".join(sorted(
        device.device.split("/")[3] + "/" + node.node_name
        for device in seen.step_stats.dev_stats
        for node in device.node_stats
        if node.node_name not in ("_SOURCE", "RecvTensor")
    ))

print("from the second:", places(t, v))
print("add:", places(t, v.assign_add(1.0, name="add")))
with tf.device("/job:local/task:1"):
    w = tf.Variable(0.0, name="w")
s.run(w.initializer)
print("pinned:", places(s, w))
print("add there:", places(t, w.assign_add(1.0, name="more")))
with tf.device("/cpu:0"):
    x = tf.Variable(0.0, name="x")
print("a CPU:", places(t, x.initializer))

one, two = tf.Graph(), tf.Graph()
with one.as_default():
    mine = tf.Variable(0.0, name="state")
tf.Session(first.target, graph=one).run(mine.assign(1.0))
with two.as_default():
    theirs = tf.Variable(0.0, name="state")
print("one state:", tf.Session(second.target, graph=two).run(theirs))

with two.as_default(), tf.Session() as local:
    local.run(theirs.initializer)
    print("without a cluster:", local.run(theirs))
"""


def test_variables_without_a_device_are_shared(tmp_path: Path) -> None:
    """They are on the first task of the cluster, whichever server's session uses them; those that
    have a device, and what changes them, stay there. The same graph runs without a cluster, too."""
    script = SHARED
    for number, port in enumerate(free_ports(2)):
        script = script.replace(f"PORT{number}", str(port))
    (tmp_path / "shared.py").write_text(script)
    done = tf1(tmp_path, "shared.py")
    assert done.stdout.splitlines() == [
        "shared 1.0 1.0",
        "from the second: task:0/v",
        "add: task:0/add task:0/add/value task:0/v",
        "pinned: task:1/w",
        "add there: task:0/more/value task:1/more task:1/w",
        "a CPU: task:0/x task:0/x/Assign task:0/x/initial_value",
        "one state: 1.0",
        "without a cluster: 0.0",
    ], done.stderr


COUNTER = """
import sys
import time
import tensorflow as tf

job, index, ps, workers = sys.argv[1:]
cluster = tf.train.ClusterSpec({"ps": ps.split(","), "worker": workers.split(",")})
server = tf.train.Server(cluster, job_name=job, task_index=int(index))
v = tf.Variable(0.0, name="v")
filters = ["/job:ps", "/job:%s/task:%s" % (job, index)]  # the other workers may have left
session = tf.Session(server.target, config=tf.ConfigProto(device_filters=filters))
if job == "ps":
    while len(session.run(tf.report_uninitialized_variables())) > 0:
        time.sleep(0.1)
    while session.run(v) < 6:
        time.sleep(0.1)
    print("v is %.1f" % session.run(v))
    server.join()
if index == "1":
    session.run(tf.global_variables_initializer())
    print("initialised")
while session.run(tf.report_uninitialized_variables()):
    print("waits")
    time.sleep(0.1)
for _ in range(3):
    session.run(v.assign_add(1.0))
with tf.device("/job:ps/task:0"):
    done = tf.FIFOQueue(2, tf.int32, shared_name="done")
session.run(done.enqueue(1))
while session.run(done.size()) < 2:
    time.sleep(0.1)
print("added, with", "%.1f" % session.run(v, options=None))
"""
CLUSTER = """
name = "tutorial"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = [{workers}]
[run]
command = ["{{python}}", "{{trainer}}", "tf1", "script.py", {words}]
workdir = "{folder}"
finish_timeout = 30
"""


def test_tasks_of_a_cluster_count_in_one_variable(tmp_path: Path) -> None:
    """One initialises, the others wait for that, an empty list of variables being false; nobody
    names a device."""
    (tmp_path / "script.py").write_text(COUNTER)
    words = '"{job}", "{index}", "{ps_hosts}", "{worker_hosts}"'
    workers = '"localhost:auto", "localhost:auto"'
    text = CLUSTER.format(words=words, workers=workers, folder=tmp_path)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("ps:0", "v is 6.0")
        assert up.wait() == 0, up.transcript()
    for worker in ("worker:0", "worker:1"):
        assert "added, with 6.0" in [e["text"] for e in up.of("log") if e["task"] == worker]


TOWERS = """
import tensorflow as tf

def inputs():
    queue = tf.train.string_input_producer(["train.tfrecords"], num_epochs=1)
    _, record = tf.TFRecordReader().read(queue)
    features = tf.parse_single_example(record, features={
        "image_raw": tf.FixedLenFeature([], tf.string),
        "label": tf.FixedLenFeature([], tf.int64),
    })
    image = tf.cast(tf.decode_raw(features["image_raw"], tf.uint8), tf.float32) / 255
    image.set_shape([784])
    return tf.train.shuffle_batch(
        [image, tf.cast(features["label"], tf.int32)], batch_size=10, num_threads=2,
        capacity=60, min_after_dequeue=20)

with tf.Graph().as_default(), tf.device("/cpu:0"):
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    towers = []
    with tf.variable_scope(tf.get_variable_scope()):
        for i in range(2):
            with tf.device("/gpu:%d" % i), tf.name_scope("tower_%d" % i):
                images, labels = inputs()
                with tf.device("/cpu:0"):
                    weights = tf.get_variable("w", [784, 10], initializer=tf.zeros_initializer())
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=labels, logits=tf.matmul(images, weights)))
                tf.get_variable_scope().reuse_variables()
                towers.append(optimizer.compute_gradients(loss))
    mean = [(tf.reduce_mean(tf.stack([g for g, _ in pairs]), 0), pairs[0][1])
            for pairs in zip(*towers)]
    train_op = optimizer.apply_gradients(mean)
    session = tf.Session(config=tf.ConfigProto(allow_soft_placement=SOFT))
    session.run(tf.group(tf.global_variables_initializer(), tf.local_variables_initializer()))
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=session, coord=coord)
    steps = 0
    try:
        while not coord.should_stop():
            session.run([train_op, loss])
            steps += 1
    except tf.errors.OutOfRangeError:
        print("Done training, %d steps." % steps)
    finally:
        coord.request_stop()
    coord.join(threads)
"""


@variants("soft", [True, False], test=1)
def test_input_queues_in_towers_are_on_the_cpu(tmp_path: Path, soft: bool) -> None:
    """A queue in each tower, as most programs for several GPUs had it; GPUs that are not there are
    the CPU, which is said."""
    images, labels = digits.load()
    tfrecord.write_one(tmp_path, "train", Split(images[:100], labels[:100]))
    (tmp_path / "towers.py").write_text(TOWERS.replace("SOFT", str(soft)))
    done = tf1(tmp_path, "towers.py")
    assert done.stdout.splitlines() == [
        "tf1: this machine has no GPU: CPU:0 replaces GPU:0 and GPU:1",
        "Done training, 10 steps.",
    ], done.stderr


NAMES = [
    f"/job:{task}/replica:0/task:{index}/device:{device}"
    for task, index, device in [
        ("worker", 1, "CPU:0"),
        ("worker", 1, "GPU:0"),
        ("worker", 0, "CPU:0"),
        ("ps", 1, "CPU:0"),
        ("ps", 0, "CPU:0"),
    ]
]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("", "/job:ps/task:0"),
        ("/cpu:0", "/job:ps/task:0/device:CPU:0"),
        ("/job:worker", "/job:worker/task:0"),
        ("/job:worker/gpu:0", "/job:worker/task:0/device:CPU:0"),
        ("/job:ps/task:1", "/job:ps/task:1"),
        ("/job:worker/task:1/gpu:0", "/job:worker/task:1/device:GPU:0"),
        ("/job:worker/task:1/gpu:3", "/job:worker/task:1/device:GPU:0"),
        ("/job:absent/gpu:0", "/job:absent/device:GPU:0"),
    ],
)
def test_what_a_device_leaves_open_is_the_first_by_name(asked: str, given: str) -> None:
    """As TensorFlow 1 sorted them; a GPU that the task does not have is one that it has, or its
    CPU."""
    with tf.Graph().as_default() as graph, tf.device(asked):
        one = tf.constant(1.0, name="one")
        placer.Placer(NAMES, remote=True, soft=False).place(graph)
        assert one.op.device == given


def test_what_shares_a_variable_goes_with_it() -> None:
    """An operation without a device that changes a variable, or is colocated with one."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:1"):
            old = tf.compat.v1.Variable(0.0, use_resource=False)
            new = tf.compat.v1.Variable(0.0, use_resource=True)
        operations = [old.assign_add(1.0).op, new.assign_add(1.0, read_value=False)]
        with tf.compat.v1.colocate_with(old.op):
            operations.append(tf.constant(1.0).op)
        alone = tf.constant(1.0).op
        placer.Placer(NAMES, remote=True, soft=False).place(graph)
        assert {one.device for one in operations} == {"/job:ps/task:1"}
        assert alone.device == "/job:ps/task:0"


@pytest.mark.parametrize("resource", [False, True])
def test_what_only_reads_variables_does_not_go_with_them(resource: bool) -> None:
    """A saver that is made outside any device reads those of two ps, and stays where the program
    is."""
    with tf.Graph().as_default() as graph:
        for index in (0, 1):
            with tf.device(f"/job:ps/task:{index}"):
                tf.compat.v1.Variable(1.0, name=f"v{index}", use_resource=resource)
        tf.compat.v1.train.Saver()
        placer.Placer(NAMES, remote=True, soft=False).place(graph)
        files = [op for op in graph.get_operations() if op.type in placer.FILES]
        assert {op.type for op in files} == {"SaveV2", "RestoreV2"}
        assert not [op.device for op in files if "job" in op.device]
        assigned = {op.device for op in graph.get_operations() if "save/Assign" in op.name}
        assert assigned == {"/job:ps/task:0", "/job:ps/task:1"}


def test_a_session_without_a_server_has_what_was_made_since(tmp_path: Path) -> None:
    """What is colocated with an operation, for which a session with a server chose, had its device
    when it was made."""
    with tf.Graph().as_default() as graph:
        there = tf.compat.v1.Variable(0.0)
        placer.Placer(NAMES, remote=True, soft=False).place(graph)
        with tf.compat.v1.colocate_with(there.op):
            beside = tf.constant(1.0).op
        last = there.assign_add(1.0, read_value=False)
        with tf.device("/job:ps/task:0"):
            asked = tf.constant(1.0).op
        assert beside.device == "/job:ps/task:0"
        placer.Placer(["/job:localhost/task:0/device:CPU:0"], remote=False, soft=False).place(graph)
        devices = {one.device for one in graph.get_operations() if one is not asked}
        assert devices == {""} and asked.device == "/job:ps/task:0", last


def test_on_gpus_a_queue_and_all_that_uses_it_are_on_the_cpu() -> None:
    """With soft placement, as in TensorFlow 1; what computes stays on the GPU."""
    here = [
        f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
    ]
    with tf.Graph().as_default() as graph, tf.device("/gpu:1"):
        queue = tf.queue.FIFOQueue(2, tf.float32)
        taken, computed = queue.dequeue(), tf.matmul([[1.0]], [[2.0]])
        put, size = queue.enqueue(1.0), queue.size()
        placer.Placer(here, remote=False, soft=True).place(graph)
    on_cpu = {op.device for op in (queue.queue_ref.op, taken.op, put, size.op)}
    assert on_cpu == {"/device:CPU:0"}
    assert re.fullmatch(r"/device:(GPU:1|CPU:0)", computed.op.device)


SYNC = """
import os
import sys
import time
import tensorflow as tf

job, index, ps, workers = sys.argv[1:]
cluster = tf.train.ClusterSpec({"ps": ps.split(","), "worker": workers.split(",")})
server = tf.train.Server(cluster, job_name=job, task_index=int(index))
if job == "ps":
    server.join()
while index == "1":
    time.sleep(0.1)
    if os.path.exists("trained"):
        sys.exit()
with tf.device(tf.train.replica_device_setter(
        worker_device="/job:worker/task:%s" % index, cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [4], initializer=tf.ones_initializer())
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=1, total_num_replicas=1)
    hook = optimizer.make_session_run_hook(True)
    train_op = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)
hooks = [hook, tf.train.StopAtStepHook(last_step=40)]
with tf.train.MonitoredTrainingSession(server.target, True, hooks=hooks) as session:
    while not session.should_stop():
        _, at = session.run([train_op, step])
    print("at %d" % at)
    open("trained", "w").close()
"""


@pytest.mark.prove
def test_a_synchronous_program_succeeds(tmp_path: Path) -> None:
    """Its chief waits at the end for gradients that nobody sends, but not the two minutes that
    TensorFlow gives it, in which it would be ended as one that hangs."""
    (tmp_path / "script.py").write_text(SYNC)
    words = '"{job}", "{index}", "{ps_hosts}", "{worker_hosts}"'
    workers = '"localhost:auto", "localhost:auto"'
    text = CLUSTER.format(words=words, workers=workers, folder=tmp_path)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "at ")
        assert up.wait() == 0, up.transcript()


NUMPY = """
import collections
import numpy as np
import tensorflow as tf

assert np.array([1, 2], np.float).dtype == np.float64 and np.int is int and np.object is object
assert np.bool(1) is np.True_ or np.bool(1) is True
assert np.zeros(2, np.uint8).tostring() == b"\\0\\0" and np.uint8(1).tostring() == b"\\1"
read = np.fromstring(b"\\1\\2", np.uint8)
read[0] = 3
assert read.tolist() == [3, 2] and np.fromstring("1 2", sep=" ").tolist() == [1.0, 2.0]
assert np.asscalar(np.array([2])) == 2 and np.NaN != np.NaN and np.product([2, 3]) == 6
assert np.in1d([[1, 2]], [2]).tolist() == [False, True]
grid = np.zeros((2, 2))
grid.itemset((0, 1), 5)
grid.itemset(3, 7)
assert grid.tolist() == [[0, 5], [0, 7]] and grid.ptp() == 7
assert np.array([1], ">u2").newbyteorder().tolist() == [256]

session = tf.Session()
empty, one, several = tf.zeros([0]), tf.constant([2.5]), tf.constant([[1.0, 2.0]])
assert not session.run(empty) and session.run(one)
print("%d %.1f" % (session.run(one), session.run(one)), session.run(several), session.run(one))
fetched = session.run({"a": [empty, one], "b": (one, several)})
assert not fetched["a"][0] and int(fetched["b"][0]) == 2
Pair = collections.namedtuple("Pair", "x y")
assert float(session.run(Pair(one, several)).x) == 2.5
assert repr(session.run(one)) == repr(np.array([2.5], np.float32))
assert type(session.run(several)) is np.ndarray
try:
    bool(session.run(several))
except ValueError as error:
    print(str(error).partition(".")[0])
"""


def test_what_numpy_took_away_is_there(tmp_path: Path) -> None:
    """Names, methods, the binary `fromstring`; an empty result is false."""
    (tmp_path / "old.py").write_text(NUMPY)
    done = tf1(tmp_path, "old.py")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "2 2.5 [[1. 2.]] [2.5]",
            "The truth value of an array with more than one element is ambiguous",
        ],
    ), done.stderr


@pytest.mark.prove
def test_a_traceback_is_the_scripts(tmp_path: Path) -> None:
    """Where the operation ran, and where it was made; no line of what runs the script. Its level of
    TensorFlow's messages holds, though it comes after the import."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import tensorflow as tf\nimport os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
        "wrong = tf.constant([1])[tf.placeholder(tf.int32)]\n"
        "tf.Session().run(wrong, {wrong.op.inputs[1].op.inputs[0]: 5})\n"
    )
    done = tf1(tmp_path, "fails.py", cold=True)
    shown = done.stderr.splitlines()
    places = [line for line in shown if line.startswith(("  File ", "    File "))]
    assert done.returncode == 1 and places[0] == f'  File "{script}", line 5, in <module>'
    assert f'    File "{script}", line 4, in <module>' in places
    assert not [line for line in places if "runpy" in line or "/trainer/" in line]
    assert shown.count("Traceback (most recent call last):") == 1
    assert not re.search(r"^E\d{4} |mlir_graph_optimization_pass", done.stderr, re.MULTILINE)


def test_a_missing_module_is_missed_in_the_scripts_line(tmp_path: Path) -> None:
    """The traceback, and so the cause that a run names, ends there, and not in what runs it."""
    (tmp_path / "beside.py").write_text("\nfrom tensorflow.contrib import slim\n")
    (tmp_path / "script.py").write_text("import beside\n")
    done = tf1(tmp_path, "script.py")
    places = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    script, beside = (tmp_path / name for name in ("script.py", "beside.py"))
    assert places == [
        f'  File "{script}", line 1, in <module>',
        f'  File "{beside}", line 2, in <module>',
    ]


LAYERS = """
import tensorflow as tf

cell = tf.nn.rnn_cell.BasicLSTMCell(3)
outputs, _ = tf.nn.dynamic_rnn(cell, tf.zeros([2, 4, 5]), dtype=tf.float32)
print(tf.layers.dense(outputs, 6).shape)
"""


LEARNING_PHASE = """
import tensorflow as tf

tf.keras.backend.set_learning_phase(True)
"""
LEGACY = "legacy Keras has it: `pip install tf_keras`, without `TF_USE_LEGACY_KERAS=0`"


@pytest.mark.parametrize(
    ("script", "legacy", "out", "hint"),
    [
        (LAYERS, None, "(2, 4, 6)\n", ""),
        (LAYERS, "0", "", LEGACY),
        (LEARNING_PHASE, "0", "", LEGACY),
    ],
)
def test_layers_and_cells_are_legacy_kerass(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    legacy: str | None,
    out: str,
    hint: str,
) -> None:
    """Where it is installed, and unless the user says otherwise."""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    if legacy:
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", legacy)
    (tmp_path / "script.py").write_text(script)
    done = tf1(tmp_path, "script.py")
    assert done.stdout == out and hint in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("for i in xrange(3): pass", "tf1: `xrange` is of Python 2: write `range`."),
        ("print 'a'", "script.py:1 is Python 2, and this is Python 3: `2to3 -w FILE`"),
    ],
)
def test_python_2_is_named_with_a_remedy(tmp_path: Path, text: str, hint: str) -> None:
    """Below the traceback, which begins in the script."""
    (tmp_path / "script.py").write_text(text)
    done = tf1(tmp_path, "script.py")
    assert done.returncode == 1 and hint in done.stderr.splitlines()[-1]
    (place,) = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert place.startswith(f'  File "{tmp_path / "script.py"}", line 1')
