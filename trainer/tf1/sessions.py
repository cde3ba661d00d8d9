"""Sessions of a cluster as programs of TensorFlow 1 make them: where they save, how they wait.

A saver that no program asks for by name is TensorFlow's default: a sharded one, of which each ps
writes its part on its own disk. A checkpoint is whole only where all hosts share that disk, so here
the default is one file, written where the session is.

A worker whose chief has not initialised the variables looks again every second instead of every 30,
and says that it waits. A program that starts the server of another task than it was started as,
because of a mistyped flag, is refused. A call that has not ended in the time that its session gives
it (`operation_timeout_in_ms`) says on which tasks it had operations.
"""

import functools
import inspect
import json
import math
import os
import re
import sys
import time
from typing import Any

import tensorflow
from tensorflow.python.client import session
from tensorflow.python.training import saver as savers
from tensorflow.python.training import session_manager

v1 = tensorflow.compat.v1
RECOVERY_WAIT_SECS = 1
SILENCE = 3.0
"""Seconds after which a worker says that it waits."""
WAITS = re.compile(
    "Dequeue|Enqueue|TakeGradient|TakeMany|Unstage|IteratorGetNext|ReaderRead|PyFunc"
)
"""Types of operations that end only when something comes, or when there is room."""
MOST_NAMED = 3
_tasks: list[str] = []
"""Names of the tasks whose servers this process has started."""


def install() -> None:
    """Changes version 1's savers and session managers in this process."""
    savers._get_saver_or_default = _saver_or_default
    for owner in (session_manager.SessionManager, v1.train.Supervisor):
        _set_default(owner.__init__, "recovery_wait_secs", RECOVERY_WAIT_SECS)
    _say_who_waits(session_manager.SessionManager)
    _know_tasks(v1.train.Server)
    _name_tasks_of_timeouts(session.BaseSession)


def _saver_or_default() -> Any:
    """The program's saver, else one that writes all variables into one file."""
    collection = v1.get_collection(v1.GraphKeys.SAVERS)
    if len(collection) > 1:
        raise RuntimeError("there are several savers: pass one to `Scaffold` or the hook")
    if collection:
        return collection[0]
    saver = v1.train.Saver(allow_empty=True)
    v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
    return saver


def _set_default(function: Any, name: str, value: Any) -> None:
    """Gives one argument of a function another default; what a caller passes holds."""
    plain = inspect.unwrap(function)  # a decorator names the caller of the function in a warning
    parameters = inspect.signature(plain).parameters.values()
    with_default = [one.name for one in parameters if one.default is not one.empty]
    defaults = [*plain.__defaults__]
    defaults[with_default.index(name)] = value
    plain.__defaults__ = tuple(defaults)


def _say_who_waits(manager: Any) -> None:
    """Makes waiting for the chief's variables visible, once for each session."""
    wait, close = manager.wait_for_session, manager._safe_close

    def wait_for_session(self: Any, *words: Any, **options: Any) -> Any:
        self._tf1_silent_until = time.monotonic() + SILENCE
        return wait(self, *words, **options)

    def safe_close(self: Any, session: Any) -> None:
        if time.monotonic() > self._tf1_silent_until:  # another look has found them without values
            self._tf1_silent_until = math.inf
            name = _tasks[0] if len(_tasks) == 1 else "this program"
            print(f"tf1: {name} waits for the chief's variables")
        close(self, session)

    manager.wait_for_session, manager._safe_close = wait_for_session, safe_close


def _know_tasks(server: Any) -> None:
    """Remembers the tasks whose servers are started; the first one must be the task that tfmux has
    started here, where the cluster has that."""
    init = server.__init__

    @functools.wraps(init)
    def started(self: Any, *words: Any, **options: Any) -> None:
        definition = _definition(*words, **options)
        if definition is not None and not _tasks:
            _check_task(definition)
        init(self, *words, **options)
        _tasks.append(f"{self.server_def.job_name}:{self.server_def.task_index}")

    server.__init__ = started


def _definition(
    server_or_cluster_def: Any, job_name: Any = None, task_index: Any = None, *_: Any, **__: Any
) -> Any:
    """The task that a server is asked to be, and its cluster; None where TensorFlow finds out, or
    says what is wrong."""
    whole = isinstance(server_or_cluster_def, v1.train.ServerDef)
    if whole or job_name is None or task_index is None:
        return None
    return job_name, task_index, v1.train.ClusterSpec(server_or_cluster_def)


def _check_task(definition: Any) -> None:
    """Refuses to be another task than the one that tfmux has started. A program that has a cluster
    of its own, such as one that forks all tasks of it, may be whatever it likes.

    Raises:
        SystemExit: it would run as another one of the same job. Programs catch other exceptions,
            and end as if they had succeeded.
    """
    job, index, cluster = definition
    _, _, task = os.environ.get("TFMUX_TASK", "").rpartition("/")[0].rpartition("/")
    own, _, number = task.rpartition(":")
    if own != job or index == int(number or -1) or not _has_own_address(cluster, own, number):
        return
    unknown = _unknown_flags()
    why = f"the program does not know {', '.join(unknown)}"
    if not unknown:
        why = f"the program starts the server of task {index} whatever its words say"
    sys.exit(f"trainer: {task} runs as {job}:{index}: {why}")


def _has_own_address(cluster: Any, job: str, number: str) -> bool:
    """Whether a cluster has the task that was started here where `TF_CONFIG` has it."""
    try:
        address = json.loads(os.environ["TF_CONFIG"])["cluster"][job][int(number)]
        return bool(cluster.task_address(job, int(number)) == address)
    except (KeyError, IndexError, TypeError, ValueError):
        return False


def _unknown_flags() -> list[str]:
    """Flags of the command that the program has not defined; none where it does not read them by
    `tf.app.flags`."""
    defined = v1.app.flags.FLAGS
    words = (word for word in sys.argv[1:] if word[:1] == "-")
    names = dict.fromkeys(word.lstrip("-").partition("=")[0] for word in words)
    known = [name for name in names if name in defined or name.removeprefix("no") in defined]
    return [f"--{name}" for name in names if name not in known] if known else []


def _name_tasks_of_timeouts(base: Any) -> None:
    """Adds to a call that took too long where its operations are: TensorFlow's message has no
    task."""
    run = base._do_run

    @functools.wraps(run)
    def do_run(self: Any, handle: Any, targets: Any, fetches: Any, feeds: Any, *words: Any) -> Any:
        try:
            return run(self, handle, targets, fetches, feeds, *words)
        except tensorflow.errors.DeadlineExceededError as error:
            fed = {place.deref().op for place in feeds or ()}
            operations = _needed([*targets, *(tensor.op for tensor in fetches)], fed)
            error._message = error.message.rstrip() + _places(operations)
            raise

    base._do_run = do_run


def _needed(operations: list[Any], fed: set[Any]) -> list[Any]:
    """Finds the operations that a call runs: these, and what they are computed from unless it is
    fed."""
    needed, left = dict.fromkeys(operations), list(operations)
    while left:
        operation = left.pop()
        before = [*operation.control_inputs, *(tensor.op for tensor in operation.inputs)]
        new = [one for one in before if one not in needed and one not in fed]
        left += new
        needed |= dict.fromkeys(new)
    return list(needed)


def _places(operations: list[Any]) -> str:
    """Says on which tasks operations are, and which of them can wait; empty if no task is known."""
    where: dict[str, str] = {}  # of an operation that can wait: its task
    tasks = set()
    for operation in operations:
        device = tensorflow.DeviceSpec.from_string(operation.device)
        if device.job is None or device.task is None:
            continue
        task = f"{device.job}:{device.task}"
        tasks.add(task)
        if WAITS.search(operation.type):
            where[operation.name] = task
    if not tasks:
        return ""
    text = f" It had operations on {', '.join(sorted(tasks))}"
    if where:
        named = [f"{name} on {task}" for name, task in sorted(where.items())[:MOST_NAMED]]
        text += f"; what can wait: {', '.join(named)}{', …' if len(where) > MOST_NAMED else ''}"
    return text
