"""Devices of operations as TensorFlow 1 chose them, where today's release chooses others.

Of the tasks that a device's name leaves open, version 1 took the first of the session's cluster by
name; later releases take the client's own, so that variables which the tutorials share are shared
no more. With soft placement, version 1 moved input queues to the CPU that stood in a tower's
`/gpu:0`; later releases refuse the graph. Both are decided again here, just before a session gets
new operations.

A GPU that a task does not have is replaced by one that it has, in turn, or by the CPU, and a line
says so.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow
from tensorflow.python.client import session as sessions  # where version 1's sessions extend graphs
from tensorflow.python.framework import kernels

v1 = tensorflow.compat.v1
DeviceSpec = v1.DeviceSpec
FILES = frozenset(
    "SaveV2 RestoreV2 MergeV2Checkpoints Save SaveSlices Restore RestoreSlice".split()
)
"""Operations of savers. Without a task they stay on the session's own: a checkpoint is read and
written where the program is, which makes its directory and looks for it there."""
CPU = {"device_type": "CPU", "device_index": 0}
_given: Any = weakref.WeakKeyDictionary()
"""For each graph the operations whose device was chosen here, and their device before."""


def install() -> None:
    """Makes every session of this process choose as version 1 did."""
    extend = sessions.BaseSession._extend_graph

    def extend_graph(session: Any) -> None:
        # Queue runners call a session from threads of their own, and must find devices chosen.
        with session.__dict__.setdefault("_tf1_lock", threading.RLock()):
            version = session.graph.version
            if getattr(session, "_tf1_version", None) != version:
                if not hasattr(session, "_tf1_placer"):
                    session._tf1_placer = Placer(*_facts(session, extend))
                session._tf1_placer.place(session.graph)
                session._tf1_version = version
        extend(session)

    sessions.BaseSession._extend_graph = extend_graph


def _facts(session: Any, extend: Callable[[Any], None]) -> tuple[list[str], bool, bool]:
    """Names of the devices of a session, whether it has a server, and placement is soft.

    A server's devices are known when the session exists there, and it gets its first operations
    with that: another session with the same filters is asked.
    """
    config = session._config or v1.ConfigProto()
    soft = config.allow_soft_placement
    if not session.sess_str:
        return [device.name for device in session.list_devices()], False, soft
    asked = v1.ConfigProto()
    asked.CopyFrom(config)
    asked.log_device_placement = False
    with tensorflow.Graph().as_default() as graph:
        v1.no_op()
        other = sessions.BaseSession(session.sess_str, graph, asked)
        extend(other)
        names = [device.name for device in other.list_devices()]
        other.close()
    return names, True, soft


class Placer:
    """Chooses for one session, whose devices have these `names`.

    Operations that share a variable or a queue, or are colocated, are one group: they go together.
    """

    def __init__(self, names: Iterable[str], remote: bool, soft: bool) -> None:
        specs = [DeviceSpec.from_string(name) for name in names]
        self._tasks = sorted({_task(spec) for spec in specs}, key=_by_name)
        self._there = Counter((*_task(spec), spec.device_type) for spec in specs)
        self._remote, self._soft = remote, soft
        self._placed = 0
        self._replaced: dict[tuple[str, str], set[str]] = {}

    def place(self, graph: Any) -> None:
        """Gives the operations that are new in a graph their devices."""
        operations = graph.get_operations()
        new, self._placed = operations[self._placed :], len(operations)
        if not self._remote:
            self._restore(graph, new)
        for group in _groups(new):
            self._choose(group)
        for (where, instead), asked in self._replaced.items():
            stands = f"{instead} replaces {' and '.join(sorted(asked))}"
            print(f"tf1: {where}: {stands}")
        self._replaced = {}

    def _choose(self, group: list[Any]) -> None:
        specs = [DeviceSpec.from_string(operation.device) for operation in group]
        named = next((spec for spec in specs if spec.task is not None), None)
        named = named or next((spec for spec in specs if spec.job is not None), DeviceSpec())
        at_home = named.task is None and any(operation.type in FILES for operation in group)
        first = None if at_home else self._first(named)
        on_gpus = [one for one, spec in zip(group, specs, strict=True) if _is_gpu(spec)]
        to_cpu = self._soft and (
            any(spec.device_type == "CPU" for spec in specs)
            or not all(map(_has_gpu_kernel, on_gpus))
        )
        for spec, operation in zip(specs, group, strict=True):
            own = spec
            if self._remote and first and spec.task is None and spec.job in (None, first[0]):
                own = own.replace(job=first[0], task=first[1])
            if to_cpu and _is_gpu(own):
                own = own.replace(**CPU)
            if own.device_type:
                own = self._one_that_is_there(own, first)
            if own != spec:
                _change(operation, own)

    def _first(self, spec: Any) -> tuple[Any, Any] | None:
        """The first task by name that a device's name may mean."""
        if spec.job is not None and spec.task is not None:
            return _task(spec)
        return next((task for task in self._tasks if spec.job in (None, task[0])), None)

    def _one_that_is_there(self, spec: Any, first: tuple[Any, Any] | None) -> Any:
        task = _task(spec) if self._remote else first
        if task not in self._tasks or spec.device_index is None:
            return spec  # TensorFlow says which tasks there are
        kind, index = spec.device_type, spec.device_index
        count = self._there[(*task, kind)]
        if index < count:
            return spec
        if kind != "GPU":  # a queue's own `CPU` in a tower's `/gpu:1` means `CPU:1`
            return spec.replace(device_index=0) if kind == "CPU" else spec
        instead = {"device_type": "GPU", "device_index": index % count} if count else CPU
        has = f"has {count} GPU{'s' if count > 1 else ''}" if count else "has no GPU"
        where = f"/job:{task[0]}/task:{task[1]}" if self._remote else "this machine"
        device = "{device_type}:{device_index}".format(**instead)
        self._replaced.setdefault((f"{where} {has}", device), set()).add(f"GPU:{index}")
        return spec.replace(**instead)

    def _restore(self, graph: Any, operations: list[Any]) -> None:
        """Takes back what a session with a server has chosen: there are no tasks here. What was
        made colocated since then has got the chosen device, too."""
        given = _given.get(graph, {})
        taken_back: dict[str, tuple[str, str]] = {}  # of an operation: device chosen, and before
        for operation in operations if given else ():
            name, chosen = operation.name, operation.device
            before = given.pop(name, None)
            for other in _together(operation) if before is None else ():
                if taken_back.get(other.name, ("",))[0] == chosen:
                    before = taken_back[other.name][1]
            if before is not None:
                taken_back[name] = chosen, before
                operation._set_device(before)


def _task(spec: Any) -> tuple[Any, Any]:
    return spec.job, spec.task


def _is_gpu(spec: Any) -> bool:
    return bool(spec.device_type == "GPU")


def _by_name(task: tuple[Any, Any]) -> tuple[str, str]:
    return str(task[0]), str(task[1])


def _change(operation: Any, spec: Any) -> None:
    _given.setdefault(operation.graph, {}).setdefault(operation.name, operation.device)
    operation._set_device(spec.to_string())


def _groups(operations: list[Any]) -> list[list[Any]]:
    """The operations, and with them earlier ones that they go together with."""
    leaders: dict[str, str] = {}
    members: dict[str, list[Any]] = {}

    def leader(operation: Any) -> str:
        name: str = operation.name
        if name not in leaders:
            leaders[name], members[name] = name, [operation]
        while leaders[name] != name:
            name = leaders[name]
        return name

    for operation in operations:
        for other in _together(operation):
            mine, theirs = leader(operation), leader(other)
            if mine != theirs:
                leaders[mine] = theirs
                members[theirs] += members.pop(mine)
        leader(operation)
    return list(members.values())


def _together(operation: Any) -> list[Any]:
    """Operations with which one shares a device: they own what it changes, or are named in it."""
    owners = [
        tensor.op
        for tensor, taken_as in zip(operation.inputs, operation._input_types, strict=True)
        if taken_as._is_ref_dtype or taken_as == tensorflow.resource  # else it reads, as savers do
    ]
    for name in operation.colocation_groups():
        if (text := name.decode().removeprefix("loc:@")) != operation.name:
            try:
                owners.append(operation.graph.get_operation_by_name(text))
            except KeyError:  # of a graph that was imported in part
                continue
    return owners


def _has_gpu_kernel(operation: Any) -> bool:
    """Whether TensorFlow can compute an operation on a GPU, with its types."""
    definition = operation.node_def
    for kernel in kernels.get_registered_kernels_for_op(operation.type).kernel:
        if kernel.device_type in ("GPU", "DEFAULT") and all(
            definition.attr[one.name].type in one.allowed_values.list.type
            for one in kernel.constraint
            if definition.attr[one.name].type
        ):
            return True
    return False
