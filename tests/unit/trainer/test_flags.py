"""The command line: what is wrong with it is said at once, in one line."""

from __future__ import annotations

import json
import pathlib
import re
import tomllib

import pytest

from tests.support.paths import REPOSITORY
from trainer import flags, modes, role
from trainer.exceptions import UsageError
from trainer.modes import MODES

CLUSTER = ["--ps_hosts=tf1:2222", "--worker_hosts=tf2:2222,tf3:2222"]


def resolved(*words: str, environment: dict[str, str] | None = None) -> role.Role:
    _, options = flags.parse(["async", *words])
    return role.resolve(options, environment or {}, needs=("ps", "worker"))


def test_classic_flags_give_the_role() -> None:
    """The classic flags, `--task_id` too, give job, index, cluster and the chief."""
    worker = resolved("--job_name=worker", "--task_id=1", *CLUSTER)
    assert (worker.job, worker.index, worker.address_of(worker.task)) == ("worker", 1, "tf3:2222")
    assert not worker.is_chief and worker.number == 1
    assert resolved("--job-name", "worker", "--task-index", "0", *CLUSTER).is_chief


def test_the_tutorials_names_of_flags() -> None:
    words = ["--lr=0.3", "--training_steps=7", "--batch_size=9", "--num_gpus=2", "--train_dir=/x"]
    _, options = flags.parse(["async", *words, "--data_dir=/y", "--regularization_rate=0.5"])
    assert (options.learning_rate, options.steps, options.batch) == (0.3, 7, 9)
    assert (options.devices, options.logdir, options.data, options.l2) == (2, "/x", "/y", 0.5)


def test_tf_config_gives_the_role_when_no_flag_does() -> None:
    """TF_CONFIG counts only without role flags; its chief job is the chief."""
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    worker = resolved(environment={"TF_CONFIG": config})
    assert (worker.device, worker.is_chief, worker.chief) == (
        "/job:worker/task:0",
        False,
        ("chief", 0),
    )
    assert worker.number == 1
    flagged = resolved("--job_name=ps", "--task_index=0", *CLUSTER, environment={"TF_CONFIG": "{"})
    assert flagged.job == "ps"


def test_a_master_is_the_chief() -> None:
    """As TFJob calls it; the workers follow it."""
    spec = {"cluster": {"ps": ["c:1"], "worker": ["a:1"], "master": ["b:1"]}}
    me = {"TF_CONFIG": json.dumps(spec | {"task": {"type": "master", "index": 0}})}
    found = resolved(environment=me)
    assert found.is_chief and found.number == 0 and found.clients[1] == ("worker", 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--job_nam=ps"], "unknown flag --job-nam; did you mean --job-name?"),
        (["--stepz", "3"], "unknown flag --stepz; did you mean --steps?"),
        (["extra"], "unexpected argument 'extra'"),
        (["--steps=many"], "--steps: 'many' is not a whole number"),
        (["--steps=0"], "--steps: '0' is not above 0"),
        (["--learning-rate=nan"], "--learning-rate: 'nan' is not above 0"),
        ([], "no role: give --job_name"),
        (["--task_index=0"], "--job_name is missing beside --task_index"),
        (["--job_name=ps", *CLUSTER], "--task_index is missing"),
        (
            ["--job_name='ps'", "--task_index=0", *CLUSTER],
            "--job_name: \"'ps'\" has blanks or quotes in it; write ps",
        ),
        (
            ["--job_name=wroker", "--task_index=0", *CLUSTER],
            "--job_name: unknown job 'wroker'; the cluster has ps, worker",
        ),
        (
            ["--job_name=worker", "--task_index=2", *CLUSTER],
            "--task_index=2, but worker has 2 tasks: tf2:2222,tf3:2222",
        ),
        (
            ["--job_name=ps", "--task_index=0", "--ps_hosts=tf1: 2222", "--worker_hosts=b:1"],
            "--ps_hosts: 'tf1: 2222' has blanks or quotes in it; write tf1:2222",
        ),
        (
            ["--job_name=ps", "--task_index=0", '--ps_hosts="tf1:2222"', "--worker_hosts=b:1"],
            "--ps_hosts: '\"tf1:2222\"' has blanks or quotes in it; write tf1:2222",
        ),
        (
            ["--job_name=ps", "--task_index=0", "--ps_hosts=tf1", "--worker_hosts=b:1"],
            "--ps_hosts: 'tf1' is not host:port",
        ),
        (
            ["--job_name=ps", "--task_index=0", "--ps_hosts=a:1,", "--worker_hosts=b:1"],
            "--ps_hosts: an empty address",
        ),
        (
            ["--job_name=ps", "--task_index=0", "--ps_hosts=a:1,a:1", "--worker_hosts=b:1"],
            "--ps_hosts: a:1 is listed twice",
        ),
        (
            ["--job_name=ps", "--task_index=0", "--worker_hosts=b:1"],
            "--job_name=ps, but --ps_hosts is missing",
        ),
        (
            ["--job_name=worker", "--task_index=0", "--worker_hosts=b:1"],
            "the cluster has no ps task",
        ),
        (
            ["--job_name=Worker", "--task_index=0", *CLUSTER],
            "--job_name: unknown job 'Worker'; write worker",
        ),
        (
            ["--job_name=ps", "--task_index=0", "--ps_hosts=a:99999", "--worker_hosts=b:1"],
            "--ps_hosts: a:99999: the port is above 65535",
        ),
        (["--seed=-1"], "--seed: '-1' is below 0"),
        (["--slow-secs=inf"], "--slow-secs: 'inf' is not a finite number above 0"),
        (["--model=cnn"], "async has no --model; it belongs to towers"),
        (["--replicas_to_aggregate=1"], "async has no --replicas-to-aggregate; it belongs to sync"),
    ],
)
def test_a_mistake_is_named(words: list[str], message: str) -> None:
    """Each mistake of a command line has a message that names it and, where it can, the cure."""
    with pytest.raises(UsageError) as raised:
        resolved(*words)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("towers --epochs=inf", "--epochs: 'inf' is not a finite number above 0"),
        ("evaluate --logdir=x --poll-secs=inf", "--poll-secs: 'inf' is not a finite number"),
        ("evaluate --logdir=x --batch=5", "evaluate has no --batch; it belongs to async, sync"),
        ("tour data-service --part=worker --dispatcher=a:1 --address=tf1", "--address: 'tf1' is"),
        (
            "tour data-service --part=client --dispatcher=tf1",
            "--dispatcher: 'tf1' is not host:port",
        ),
    ],
)
def test_a_mistake_of_another_mode_is_named(words: str, message: str) -> None:
    """Flags that only some modes have are checked as well."""
    with pytest.raises(UsageError) as raised:
        flags.parse(words.split())
    assert message in str(raised.value)


def test_a_slow_worker_that_is_not_there() -> None:
    """Nobody would be slow: the index is refused before anything starts."""
    words = ["async", "--job_name=worker", "--task_index=0", *CLUSTER, "--slow-worker=2"]
    with pytest.raises(UsageError, match="--slow-worker=2, but the cluster has 2 worker tasks"):
        modes.run(*flags.parse(words))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "TF_CONFIG: Expecting property name"),
        ("{}", "TF_CONFIG: 'cluster' is missing"),
        ('{"cluster": {"ps": "a:1"}, "task": {"type": "ps", "index": 0}}', "cluster.ps is not"),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 3}}', "task.index=3, but"),
        ('{"cluster": {"ps": [" a:1"]}, "task": {"type": "ps", "index": 0}}', "write a:1"),
    ],
)
def test_a_mistake_in_tf_config_is_named(config: str, message: str) -> None:
    """A broken TF_CONFIG is a usage error that says what is broken."""
    with pytest.raises(UsageError) as raised:
        resolved(environment={"TF_CONFIG": config})
    assert message in str(raised.value)


# The demos' cluster files fit the trainer.

DEMOS = REPOSITORY / "tui" / "demos"


def modes_of(path: pathlib.Path) -> set[str]:
    """The modes that a demo's commands run; its flags are read as the trainer does."""
    file = tomllib.loads(path.read_text())
    found = set()
    for table in (file["run"], *file["jobs"].values()):
        command = table.get("command", [])
        if "{trainer}" in command:  # behind an interpreter, and perhaps a shell that runs it
            words = [_filled(word) for word in command[command.index("{trainer}") + 1 :]]
            found.add(flags.parse(words)[0].name)
    return found


def _filled(word: str) -> str:
    """A word of a command with values for the placeholders that the trainer checks."""
    word = re.sub(r"\{address[^}]*\}", "localhost", word)
    return re.sub(r"\{(port[^}]*|index)\}", "1", word)


@pytest.mark.parametrize("path", sorted(DEMOS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_trainer_takes_a_demos_flags(path: pathlib.Path) -> None:
    """A demo runs a mode of the trainer, and says in its first line what it shows."""
    assert modes_of(path)
    assert re.match(r"# \S.{20,98}\n", path.read_text())


def test_every_mode_has_a_demo() -> None:
    """All modes are shown by a demo, but `convert`, which is no training, and `tf1`, which runs
    programs of the user's."""
    shown = set().union(*(modes_of(path) for path in DEMOS.glob("*.toml")))
    assert shown == set(MODES) - {"convert", "tf1"}
