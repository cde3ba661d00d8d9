"""Words of commands: shell text, programs in the background, scripts of TensorFlow 1."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError
from launcher.files.tensorflow_1 import version_1_name
from launcher.plan.foreground import background_problem
from launcher.plan.planner import make_plan
from launcher.plan.shell_text import hook_texts
from launcher.preflight import Check, Severity, evaluation
from launcher.preflight.evaluation import programs_of_tensorflow_1
from tests.support.cluster_texts import cluster_text
from tests.support.paths import REPOSITORY
from tests.support.plans import BASE, plan_of

# Shell text in words that no shell reads: what is named, with which repair, and what is left.


def _file(words: Sequence[str], env: dict[str, str] | None = None, more: str = "") -> str:
    """Two workers on the host `far` with this command and these variables."""
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in (env or {}).items())
    hosts = {"far": {"ssh": "10.0.0.1"}}
    more = f"env = {{ {pairs} }}\n{more}"
    return cluster_text({"worker": "far:2222 far:2223"}, "c", hosts, command=words, more=more)


def _findings(text: str) -> list[tuple[str, str]]:
    """Sentence and repair of each warning."""
    found = evaluation.shell_words(
        loads(text, "c.toml", BASE), plan_of(text), "far", Check.COMMAND, "far"
    )
    listed = list(found)
    assert all(one.severity is Severity.WARN and one.code == "shell-text" for one in listed)
    return [(one.sentence, one.todo) for one in listed]


def _in_file(line: str) -> list[str]:
    """The words of a line, with the braces that a cluster file has doubled."""
    words = shlex.split(line)
    return [word if "${" in word else word.replace("{", "{{").replace("}", "}}") for word in words]


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python3 t.py > log 2>&1", "exec python3 t.py > log 2>&1"),
        ("python3 t.py 2>/dev/null", "exec python3 t.py 2>/dev/null"),
        ("nohup python3 t.py >log 2>&1 &", "exec python3 t.py >log 2>&1"),
        ("cd a && python3 t.py", "cd a && exec python3 t.py"),
        ("cd a; python3 t.py", "cd a; exec python3 t.py"),
        ("cd a && B=1 python3 t.py", "cd a && exec env B=1 python3 t.py"),
        ("export A=1; python3 t.py $A", "export A=1; exec python3 t.py $A"),
        ("a || b", "a || b"),
        ("python3 t.py data/*.csv", "exec python3 t.py data/*.csv"),
        ("python3 t.py $DATA/*.csv", 'exec python3 t.py "$DATA/"*.csv'),
        ("rm -rf out/*", "exec rm -rf out/*"),
        ("python3 t.py --d=$DATA/x", 'exec python3 t.py "--d=$DATA/x"'),
        ("python3 t.py ${lr} --n ${N:-4}", 'exec python3 t.py ${lr} --n "${N:-4}"'),
        ("python3 t.py --n `hostname`", 'exec python3 t.py --n "`hostname`"'),
        ("python3 t.py --n $(date +%s)", 'exec python3 t.py --n "$(date +%s)"'),
        ("python3 t.py --n 'a b' ~/x > ~/y", "exec python3 t.py --n 'a b' ~/x > ~/y"),
        ("python3 t.py --o=~/x > y", "exec python3 t.py '--o={home}/x' > y"),
        ("python3 t.py --r=$RANK > y", "exec python3 t.py --r={rank} > y"),
        ("A=$B python3 t.py", "exec env A=$B python3 t.py"),
    ],
)
def test_a_line_of_a_shell_becomes_a_script(line: str, script: str) -> None:
    """The sentence names its words, and the repair is a command that a shell reads and that is not
    warned of."""
    ((sentence, todo),) = _findings(_file(_in_file(line)))
    assert "worker:0, worker:1" in sentence and "no shell reads command in [run]" in sentence
    assert todo == f"write command = {json.dumps(['sh', '-c', script])} in [run]"
    assert not _findings(_file(["sh", "-c", script]))


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        ("A=1 B=x python3 t.py", 'env = { A = "1", B = "x" } and command = ["python3", "t.py"]'),
        ("exec python3 t.py", 'command = ["python3", "t.py"]'),
        (
            "python3 t.py $RANK ${WORLD_SIZE} $HOME/x",
            'command = ["python3", "t.py", "{rank}", "{world_size}", "{home}/x"]',
        ),
        ("python3 t.py --r=${rank}", 'command = ["python3", "t.py", "--r={rank}"]'),
        (
            "python3 t.py | tee x",
            'command = ["bash", "-c", "set -o pipefail; python3 t.py | tee x"]',
        ),
        ("source e.sh && t", 'command = ["bash", "-c", "source e.sh && exec t"]'),
        ("'python3 t.py --lr 1'", 'command = ["python3", "t.py", "--lr", "1"]'),
        ("python3 't.py --lr 1' --b", 'command = ["python3", "t.py", "--lr", "1", "--b"]'),
        ("'python3 t.py > x'", 'command = ["sh", "-c", "python3 t.py > x"]'),
    ],
)
def test_a_repair_needs_no_shell_where_it_can_do_without(line: str, todo: str) -> None:
    """Variables of the task, placeholders, and the words of a line that was written as one."""
    ((_, found),) = _findings(_file(_in_file(line)))
    assert found == f"write {todo} in [run]"


def test_variables_of_this_machine_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a variable that is set here and that no host has, then the repair passes it on."""
    monkeypatch.setenv("DATASET", "mnist")
    ((_, todo),) = _findings(_file(["prog", "--d=$DATASET", "$PATH"]))
    command = json.dumps(["sh", "-c", 'exec prog "--d=$DATASET" $PATH'])
    assert todo == f'write env_from = ["DATASET"] and command = {command} in [run]'


@pytest.mark.parametrize(
    "line",
    [
        # Hydra
        "python3 t.py +exp=a ++seed=1 ~db model.size=200M data=[a,b] '+exp=glob(*)'",
        "python3 t.py hydra.run.dir='out/${now:%Y-%m-%d}/${name}_${task.name}'",
        "python3 t.py --config-dir=. out='${oc.env:OUT}/x' +a.b='${z}' x.y=${rank}",
        # JSON, dictionaries of Python, constructors
        """python3 t.py --cfg '{"zero": {"stage": 3}, "a": "$ref", "b": [1, 2]}'""",
        """python3 t.py --over "{'size': 1200, 'r': -1}" --up '(0,0,1)' --m "M(a='b')" """,
        # patterns that programs read
        "python3 t.py --data 'data/*.tfrecord' --include='*.py' --exclude=build/** -k 'a*'",
        "python3 t.py --shards 'train-{000000..000099}.tar' url=https://a/b-{0..9}.tar",
        "python3 t.py --regex '^a\\.[0-9]+\\.(w|b)$' --freeze 'b\\.(0|1)\\..*' 'x$'",
        "find . -name '*.py' -exec wc -l '{}' ';'",
        "grep -r 'a*b$' src --include=*.py",
        "awk -F: '{print $1, $NF}' /etc/passwd",
        "jq '.a | $x' f.json",
        "sed -e 's/a$/b/' f/*.txt",
        "git add '*.py'",
        # signs that are values
        "python3 t.py --delimiter '|' --sep ';' --sign '>' --op '&'",
        "sort -t '|' -k 2",
        "test 1 '>' 2",
        "pip install 'torch>=2.0' 'numpy<2'",
        "python3 t.py --version '>=2.1' --over '>0.5' '->' '=>'",
        "python3 t.py --special '<s>' '</s>' '<|end|>' '<pad>'",
        "python3 t.py --set 'a&b' --url 'http://a/?b=1&c=2' --prompt 'a & b > c | d; $5 * 2'",
        "python3 t.py --price '$5' 'US$ 10' --tex '$x$' --hash '$2b$12$abc' 'pa$word' --m 'a$'",
        "python3 t.py --n 5*3 --glob * --x 2*y",
        # what is read by somebody else
        "sh -c 'cd a && python3 t.py > log 2>&1'",
        "bash -lc 'source e.sh; exec python3 t.py $A *.csv'",
        'python3 -c \'print(1 > 2 and "a" | 3, "$HOME")\' a',
        "perl -e 'print $x' a",
        "ssh tf1 cd /x '&&' python3 t.py '>' log",
        # homes and addresses
        "prog ~/x ~ http://host/~/x ~me/x --logdir={logdir} 1~2",
        "env A=1 B=2 python3 t.py C=3",
    ],
)
def test_what_is_meant_for_the_program_is_not_warned_of(line: str) -> None:
    """Given what people do write for their programs, then nobody is told to ask a shell."""
    words = _in_file(line) if "{logdir}" not in line else shlex.split(line)
    assert _findings(_file(words)) == []


@pytest.mark.parametrize(
    ("word", "repair"),
    [
        ("--out=~/x", "--out={home}/x"),
        ("out=~/x", "out={home}/x"),
        ("-o~/x", "-o{home}/x"),
        ("@~/args", "@{home}/args"),
        ("a,~/b", "a,{home}/b"),
        ("file://~/x", "file://{home}/x"),
    ],
)
def test_a_home_inside_a_word(word: str, repair: str) -> None:
    ((sentence, todo),) = _findings(_file(["prog", word]))
    assert word in sentence and todo == f"write {repair}"
    assert not _findings(_file(["prog", repair]))


@pytest.mark.parametrize(
    ("env", "more", "todo"),
    [
        (
            {"P": "/a:$P"},
            "",
            'setup = "export P=\\"/a:$P\\"" in [run] and remove P from env in [run]',
        ),
        (
            {"P": "${Q}/b"},
            'setup = "a"',
            'setup = "a\\nexport P=\\"${Q}/b\\"" in [run] and remove P from env in [run]',
        ),
        ({"P": "$P"}, "", 'env_from = ["P"] in [run] and remove P from env in [run]'),
        ({"P": "$HOME/a"}, "", 'P = "{home}/a" in env in [run]'),
        ({"P": "${host}"}, "", 'P = "{host}" in env in [run]'),
        ({"F": "--a --d=~/x"}, "", "--a --d={home}/x"),
    ],
)
def test_shell_text_in_a_variable(env: dict[str, str], more: str, todo: str) -> None:
    """`setup` is read by a shell; a variable that is only passed on needs none."""
    ((sentence, found),) = _findings(_file(["prog"], env, more))
    assert next(iter(env)) in sentence and found == f"write {todo}"


@pytest.mark.parametrize("value", ["pa$$word", "$5", "a$", "a|b & c > d *", "${{x}}", "http://~/a"])
def test_variables_that_are_what_they_are(value: str) -> None:
    """Passwords, prices, expressions."""
    assert _findings(_file(["prog"], {"A": value})) == []


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("${A}/{job}", "${A}/worker"),
        ("${A:-${B}}{{x}}", "${A:-${B}}{x}"),
        ("out=${now:%Y}/${name}", "out=${now:%Y}/${name}"),
        ("${{A}}", "${A}"),
        ("a${", None),
        ("{A}", None),
    ],
)
def test_variables_in_braces_are_no_placeholders(word: str, there: str | None) -> None:
    """They stay for a shell or for Hydra; any other brace is a placeholder's, or an error."""
    if there is not None:
        assert plan_of(_file(["sh", "-c", word])).tasks[0].argv[-1] == there
    else:
        with pytest.raises(ClusterFileError, match="literal brace"):
            plan_of(_file(["sh", "-c", word]))


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["./done.sh", ">", "log", "2>&1"], "exec ./done.sh > log 2>&1"),
        (["mail", "-s", "$TFMUX_RUN", "me"], "exec mail -s $TFMUX_RUN me"),
        (["cd", "/a", "&&", "./x"], "cd /a && exec ./x"),
        (["python3", "x.py", "--to=~/runs"], 'exec python3 x.py "--to=$HOME/runs"'),
        (["cp", "a", "~/runs"], 'exec cp a "$HOME/runs"'),
        (["./tell", "|", "tee", "log"], "./tell | tee log"),
    ],
)
def test_the_command_of_a_hook(words: Sequence[str], script: str) -> None:
    """Given shell text in the command of a hook, when it is looked at, then what is to be written
    has a shell."""
    text = _file(["true"]) + f"\n[hooks]\non_end = {json.dumps(words)}\n"
    ((key, found),) = hook_texts(loads(text, "c.toml", BASE))
    assert key == "on_end" and "no shell reads on_end in [hooks]" in found.what
    assert found.todo == f"write on_end = {json.dumps(['sh', '-c', script])} in [hooks]"


def test_one_word_of_a_hook() -> None:
    """Given a whole command line in one word, when it is looked at, then its words are told; a
    program of its own home and a script behind `-c` are left alone."""
    text = _file(["true"]) + "\n[hooks]\n"
    (found,) = hook_texts(loads(text + 'on_end = ["notify-send done"]\n', "c.toml", BASE))
    assert found[1].todo == 'write on_end = ["notify-send", "done"] in [hooks]'
    fine = 'on_end = ["~/bin/tell", "a|b"]\non_stall = ["sh", "-c", "echo $TFMUX_RUN > x"]\n'
    assert list(hook_texts(loads(text + fine, "c.toml", BASE))) == []


# Commands whose words say that they would not stay in the foreground.


BACKGROUND = [
    "nohup python3 train.py > log 2>&1 &",
    "cd /nfs/proj; nohup python3 train.py > log 2>&1 &\n",
    "python3 train.py &\necho started $!",
    "(python3 train.py &)",
    "( python3 train.py & ) ; exit 0",
    "python3 train.py | tee log & # later",
    "{ python3 train.py; } &",
    "for i in 0 1; do python3 train.py $i & done",
    "python3 train.py & disown",
    "python3 train.py \\\n  --steps=3 &",
    "CUDA_VISIBLE_DEVICES=0 python3 train.py &",
    "nohup python3 train.py",
    "cd proj && ray start --head",
    "tmux new -d -s train 'python3 train.py'",
]
FOREGROUND = [
    "python3 train.py",
    "a & b & wait",
    "for i in 0 1; do python3 train.py $i & done; wait",
    "tensorboard & python3 train.py",
    "a && b",
    "python3 train.py > log 2>&1",
    "python3 train.py &> log",
    "python3 train.py >& log",
    "python3 train.py |& tee log",
    "python3 -c 'x & y'",
    'python3 -c "print(1) #&"',
    "a & pid=$!; trap 'kill $pid' TERM; wait $pid",
    "# a &\npython3 train.py",
    "echo 'not closed &",
    "",
]


@pytest.mark.parametrize("script", BACKGROUND)
@pytest.mark.parametrize("shell", [("sh", "-c"), ("/bin/bash", "-lc"), ("env", "A=b", "sh", "-ec")])
def test_scripts_that_end_in_the_background(script: str, shell: tuple[str, ...]) -> None:
    """The sentence says what becomes of it and what to write."""
    assert background_problem([*shell, script])


@pytest.mark.parametrize("script", FOREGROUND)
def test_scripts_that_stay(script: str) -> None:
    """An `&` that is waited for, stands in quotes or is a part of an operator is none."""
    assert background_problem(["sh", "-c", script]) == ""


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("setsid python3 train.py", True),
        ("setsid --wait python3 train.py", False),
        ("nohup python3 train.py", False),
        ("tmux new-session -d -s x python3", True),
        ("tmux new python3", False),
        ("screen -dmS train python3", True),
        ("screen -r", False),
        ("ray start --head", True),
        ("ray start --head --block", False),
        ("docker run --rm -d tf", True),
        ("docker run tf train -d", False),
        ("systemd-run --user python3", True),
        ("systemd-run --user --scope python3", False),
        ("at now", True),
        ("start-stop-daemon -S -b -x y", True),
        ("python3 train.py &", False),
    ],
)
def test_programs_that_start_others_in_the_background(command: str, found: bool) -> None:
    """By the options that keep them in the foreground."""
    assert bool(background_problem(command.split())) is found


def test_only_tasks_of_the_cluster_are_warned_of() -> None:
    """One warning for all tasks of a host; a job beside the cluster may start a daemon."""
    text = """
[hosts.a]
ssh = "a"
[jobs.worker]
tasks = ["a:1", "a:2"]
command = ["sh", "-c", "nohup python3 train.py &"]
[jobs.board]
tasks = ["a:3"]
command = ["sh", "-c", "nohup tensorboard &"]
in_cluster = false
"""
    plan = make_plan(loads(text, "x.toml", Path("/")), "check")
    (finding,) = evaluation.backgrounds(plan, "a", Check.COMMAND, "a")
    assert (finding.severity, finding.code) == (Severity.WARN, "command-background")
    assert "worker:0, worker:1" in finding.sentence and "ends in &, with nohup" in finding.sentence


# Programs that only TensorFlow 1 runs as they are.


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
