"""Programs that only TensorFlow 1 runs as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.files.tensorflow_1 import version_1_name
from launcher.preflight import Check
from launcher.preflight.evaluation import programs_of_tensorflow_1
from tests.support.cluster_texts import cluster_text
from tests.support.paths import REPOSITORY
from tests.support.plans import plan_of

EXAMPLES = REPOSITORY / "docs" / "examples"
USED = "import tensorflow as tf\n{}\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (USED.format("x = tf.placeholder(tf.float32)"), "tf.placeholder"),
        (USED.format("flags = tf.app.flags"), "tf.app"),
        (USED.format("def f():\n  with tf.Session() as s: s.run(1)"), "tf.Session"),
        (USED.format("y = tf.mul(1, 2)"), "tf.mul"),
        ("import tensorflow\nw = tensorflow.get_variable('w', [1])", "tensorflow.get_variable"),
        ("import tensorflow.contrib.slim as slim", "tensorflow.contrib.slim"),
        ("from tensorflow.contrib import rnn", "tensorflow.contrib"),
        ("from tensorflow import contrib", "tensorflow.contrib"),
        ("from tensorflow.examples.tutorials.mnist import input_data", "tensorflow.examples.tut"),
        (USED.format("model = tf.keras.Sequential()\nx = tf.math.log(1.0)"), ""),
        (USED.format("tf = tf.compat.v1\nx = tf.placeholder(1)"), ""),
        ("import tensorflow.compat.v1 as tf\nx = tf.placeholder(1)", ""),
        ("import tensorflow as tf\nx = tf.compat.v1.placeholder(1)", ""),
        ("import other as tf\nx = tf.placeholder(1)", ""),
        ("# tf.placeholder\nx = 'tf.Session'", ""),
        ("print 'Python 2'", ""),
    ],
)
def test_a_name_shows_the_version(tmp_path: Path, text: str, name: str) -> None:
    """Given a program, when it uses a name of TensorFlow 1, then that is named."""
    (tmp_path / "train.py").write_text(text)
    found = version_1_name(tmp_path / "train.py")
    assert found.startswith(name) and bool(found) == bool(name)


def test_our_own_examples_are_told_apart() -> None:
    """Given the manual's programs, then those for `tf1` are found, and no other."""
    found = {path.name for path in EXAMPLES.rglob("*.py") if version_1_name(path)}
    assert found == {path.name for path in (EXAMPLES / "tf1").glob("*.py")}


@pytest.mark.parametrize("tf1", [False, True])
def test_check_says_what_to_write(tmp_path: Path, tf1: bool) -> None:
    """Given a script for TensorFlow 1 without `tf1`, when it is checked, then a warning names the
    command to write; with `tf1`, there is none."""
    (tmp_path / "train.py").write_text(USED.format("x = tf.placeholder(tf.float32)"))
    words = ["{python}", *(["{trainer}", "tf1"] if tf1 else []), "train.py", "--job_name={job}"]
    text = cluster_text({"worker": 2}, command=words, workdir=str(tmp_path))
    plan = plan_of(text)
    about = (plan.hosts[0].name, Check.COMMAND, plan.hosts[0].name)
    found = list(programs_of_tensorflow_1(plan, *about))
    assert len(found) == (not tf1)
    for finding in found:
        assert finding.code == "tensorflow-1" and "it uses tf.placeholder" in finding.sentence
        assert '["{python}", "{trainer}", "tf1", "train.py", …]' in finding.todo
