"""Recogniser of programs for TensorFlow 1: names of `tf` that later releases have only in
`tf.compat.v1`, or not at all."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..ids import TaskId
from ..plan.run_plan import Plan
from .needed import copied_path, is_python, script_of

_LARGEST = 1 << 20
_NAMES = frozenset(
    "ConfigProto ConditionalAccumulator Coordinator FixedLenFeature FIFOQueue GPUOptions GraphKeys "
    "InteractiveSession RunOptions Session TFRecordReader add_to_collection all_variables app "
    "assign contrib decode_raw flags get_collection get_variable get_variable_scope gfile "
    "global_variables global_variables_initializer initialize_all_variables layers log logging "
    "merge_all_summaries mul neg pack parse_single_example placeholder py_func random_normal "
    "random_uniform report_uninitialized_variables reset_default_graph scalar_summary "
    "set_random_seed sub to_float to_int32 trainable_variables truncated_normal unpack "
    "variable_scope".split()
)
"""Names of the module `tf` in releases 0.x and 1.x that release 2 has dropped from it."""
_MODULES = ("tensorflow.contrib", "tensorflow.examples")


def version_1_scripts(plan: Plan, host: str) -> Iterator[tuple[TaskId, str, str]]:
    """Yields the first task of each script of a host, on this machine, that is for TensorFlow 1,
    with the script and a name in it that shows so."""
    known: set[str] = set()
    for task in plan.on_host(host):
        script = script_of(task.argv) if is_python(task.argv) else ""
        place = copied_path(task, script) if script and not task.directory else None
        if place is None or plan.workdir is None or place.path in known:
            continue
        known.add(place.path)
        if name := version_1_name(Path(plan.workdir) / place.path):
            yield task.id, script, name


def version_1_name(path: Path) -> str:
    """The first name in a program that only TensorFlow 1 has; empty if there is none, or the
    program cannot be read."""
    try:
        with open(path, "rb") as file, warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read(_LARGEST))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""  # the task will say it
    called: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for each in names:
                    if each.name.startswith(_MODULES):
                        return each.name
                    if each.name == "tensorflow":
                        called.add(each.asname or each.name)
            case ast.ImportFrom(module=str(module)) if module.startswith(_MODULES):
                return module
            case ast.ImportFrom(module="tensorflow", names=names):
                for each in names:
                    if each.name in ("contrib", "examples"):
                        return f"tensorflow.{each.name}"
            case ast.Name(id=name, ctx=ast.Store()):
                called.discard(name)  # as in `tf = tf.compat.v1`
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                if name in called and attribute in _NAMES:
                    return f"{name}.{attribute}"
            case _:
                pass
    return ""
