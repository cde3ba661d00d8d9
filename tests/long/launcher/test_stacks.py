"""Groups of stacks, their names and headlines, and what is cut: pure functions."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from launcher.ids import TaskId
from launcher.run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    record,
    schema,
    stacks_type,
)
from launcher.session.stack_collector import bounded
from tests.support.budgets import examples


def task(index: int, *processes: ProcessStack, job: str = "worker", host: str = "a") -> TaskStacks:
    return TaskStacks(TaskId(job, index), host, processes)


def taken(*tasks: TaskStacks) -> Stacks:
    return Stacks(1000.0, tasks)


SCHEMA = Draft202012Validator(schema())
FRAMES = st.builds(
    StackFrame,
    st.text(max_size=5) | st.sampled_from(["f", "g"]),
    st.sampled_from(["", "/a/x.py", "/b/x.py", "y.py"]) | st.text(max_size=5),
    st.integers(0, 9),
)
THREADS = st.builds(
    ThreadStack, st.text(max_size=3), st.lists(FRAMES, max_size=12).map(lambda x: tuple(x))
)
PROCESSES = st.builds(
    ProcessStack,
    st.integers(0, 99),
    st.text(max_size=5),
    st.sampled_from(["python", "proc", "py-spy"]),
    st.text(max_size=5),
    st.lists(THREADS, max_size=4).map(lambda x: tuple(x)),
)
TASKS = st.lists(
    st.lists(PROCESSES, min_size=1, max_size=4).map(lambda x: tuple(x)), max_size=12
).map(lambda all_: tuple(task(n, *one) for n, one in enumerate(all_)))
NAMELESS = ProcessStack(0, "", "python", "", (ThreadStack("", (StackFrame(""),)),))


@examples(40)
@given(TASKS)
@example((task(0, NAMELESS),))
def test_groups_hold_each_task_once_and_the_smallest_is_first(
    tasks: tuple[TaskStacks, ...],
) -> None:
    found = taken(*tasks)
    sizes = [len(group.tasks) for group in found.groups]
    assert sizes == sorted(sizes)
    assert sorted(one for group in found.groups for one in group.tasks) == sorted(
        one.task for one in tasks
    )
    keys = {one.task: one.key for one in tasks}
    for group in found.groups:
        assert len({keys[one] for one in group.tasks}) == 1 and group.where and group.title
    assert bool(found.headline()) == bool(tasks)
    assert stacks_type().validate_python(stacks_type().dump_python(found, mode="json")) == found
    SCHEMA.validate(record(found))


@examples(40)
@given(TASKS, st.integers(0, 60))
def test_what_is_cut_is_counted_and_where_each_task_stands_is_kept(
    tasks: tuple[TaskStacks, ...], room: int
) -> None:
    kept = bounded(tasks, room)
    assert [one.task for one in kept] == [one.task for one in tasks]
    for before, after in zip(tasks, kept, strict=True):
        assert after.main.pid == before.main.pid
        assert after.stack == before.stack[: len(after.stack)]
        assert len(after.stack) >= min(8, len(before.stack))
        counts = {id(one): 0 for one in after.processes}
        assert len(counts) <= len(before.processes)
        threads = after.main.unlisted + len(after.main.threads)
        assert threads == before.main.unlisted + len(before.main.threads)
    assert bounded(tasks) == tasks
