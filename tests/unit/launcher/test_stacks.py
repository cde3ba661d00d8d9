"""Groups of stacks, their names and headlines, and what is cut: pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent.stack_taker import parse_faulthandler, parse_py_spy
from launcher.ids import TaskId, TaskRank, named_ranks, named_tasks
from launcher.run.cause import Kind, Verdict
from launcher.run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    Unanswered,
    described,
    record,
    schema,
)
from tests.support.budgets import examples

USER = (StackFrame("__next__", "/srv/a/data.py", 12), StackFrame("step", "/srv/a/train.py", 41))
WAIT = (
    StackFrame("all_reduce", "/opt/lib/python3.12/site-packages/torch/distributed.py", 2806),
    StackFrame("step", "/srv/a/train.py", 44),
)


def process(
    *frames: StackFrame, way: str = "python", pid: int = 7, rank: int | None = None, **said: str
) -> ProcessStack:
    command, state = said.get("command", "python train.py"), said.get("state", "runs")
    return ProcessStack(pid, command, way, state, (ThreadStack("main", frames),), rank=rank)


def task(index: int, *processes: ProcessStack, job: str = "worker", host: str = "a") -> TaskStacks:
    return TaskStacks(TaskId(job, index), host, processes)


def taken(*tasks: TaskStacks) -> Stacks:
    return Stacks(1000.0, tasks)


JOIN = (
    StackFrame("_wait_for_tstate_lock", "/usr/lib/python3.11/threading.py", 1139),
    StackFrame("join", "/usr/lib/python3.11/threading.py", 1123),
    StackFrame("main", "/srv/a/train.py", 60),
)


def joining(*others: tuple[StackFrame, ...]) -> ProcessStack:
    """A process whose first thread waits for the end of another one."""
    threads = [ThreadStack("main", JOIN), *(ThreadStack("0x7f", frames) for frames in others)]
    return ProcessStack(7, "python train.py", "python", "sleeps", tuple(threads))


@pytest.mark.parametrize(
    ("serves", "frames"),
    [
        (True, [("join", "tensorflow/python/training/server_lib.py")]),
        (True, [("join", "tensorflow/python/data/experimental/service/server_lib.py")]),
        (True, [("wait", "../threading.py"), ("_wait_once", "grpc/_common.py"),
                ("wait", "grpc/_common.py"), ("wait_for_termination", "grpc/_server.py")]),
        (True, [("select", "../selectors.py"), ("serve_forever", "../socketserver.py")]),
        (False, [("join", "../threading.py")]),
        (False, [("join", "../multiprocessing/process.py")]),
        (False, [("TF_SessionRun_wrapper", "tensorflow/python/client/session.py")]),
        (False, [("__init__", "tensorflow/python/training/server_lib.py")]),
        (False, [("join", "tensorflow/python/training/coordinator.py")]),
        (False, [("sleep", "mine/server_lib.py")]),
        (False, []),
    ],
)  # fmt: skip
def test_who_only_serves_is_in_a_function_of_a_server_that_never_returns(
    serves: bool, frames: list[tuple[str, str]]
) -> None:
    """A thread of the program's own beside it, or one that nobody has seen, may work."""
    place = "/opt/lib/python3.12/site-packages"
    stack = tuple(StackFrame(function, f"{place}/{file}", 1) for function, file in frames)
    main = ThreadStack("main", (*stack, StackFrame("<module>", "/srv/a/train.py", 9)))
    library = ThreadStack("0x7f", (StackFrame("_worker", f"{place}/grpc/pool.py", 8),))
    own = ThreadStack("0x7f", (StackFrame("train", "/srv/a/train.py", 8),))

    def one(*threads: ThreadStack, unlisted: int = 0) -> ProcessStack:
        return ProcessStack(7, "python", "python", "sleeps", threads, unlisted=unlisted)

    assert one(main, library).only_serves is serves
    assert not one(main, own).only_serves and not one(library, main).only_serves
    assert not one(main, unlisted=1).only_serves and not one().only_serves

    def child(pid: int, parent: int, stack: ProcessStack) -> ProcessStack:
        return replace(stack, pid=pid, parent=parent)

    shell = ProcessStack(3, "sh -c", "proc", "sleeps", ())
    pool = f"{place}/../multiprocessing/resource_tracker.py"
    helper = one(ThreadStack("main", (StackFrame("main", pool, 1),)))
    server, binary = one(main, library), ProcessStack(9, "./train", "proc", "runs", ())
    started = (shell, child(7, 3, server), child(8, 7, helper))
    assert task(0, *started).only_serves is serves
    assert not task(0, *started, child(9, 7, one(own))).only_serves
    assert not task(0, *started, child(9, 7, binary)).only_serves


def test_a_task_stands_where_its_only_working_thread_does() -> None:
    """Given first threads that wait for another one, then a task stands where that one does: what
    tells who is late. Of several others none is taken, nor one of Python's own."""
    idle = (StackFrame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81),)
    late = task(1, joining(idle, USER))
    assert taken(task(0, joining(WAIT)), late, task(2, joining(WAIT))).headline() == (
        "worker:1 is in __next__ data.py:12; 2 others wait in step train.py:44"
    )
    assert task(0, joining(USER, WAIT)).stack == task(0, joining(idle)).stack == JOIN


WRITER = (
    StackFrame("wait", "/usr/lib/python3.11/threading.py", 327),
    StackFrame("get", "/x/lib/python3.11/site-packages/tensorflow/event_file_writer.py", 261),
)
QUEUE = (
    StackFrame("wait", "/usr/lib/python3.11/threading.py", 331),
    StackFrame("get", "/usr/lib/python3.11/queue.py", 171),
    StackFrame("prefetch", "/srv/a/data.py", 30),
)


@pytest.mark.parametrize(
    "first",
    [
        JOIN,
        (
            StackFrame("wait", "/usr/lib/python3.11/threading.py", 331),
            StackFrame("result", "/usr/lib/python3.11/concurrent/futures/_base.py", 451),
            StackFrame("main", "/srv/a/train.py", 61),
        ),
    ],
    ids=["join", "future"],
)
@pytest.mark.parametrize(
    ("others", "where"),
    [
        ((WRITER, USER), USER),
        ((USER, WRITER, QUEUE), USER),
        ((QUEUE, WRITER), QUEUE),
        ((WRITER,), WRITER),
        ((QUEUE, QUEUE), None),
        ((USER, WAIT), None),
    ],
    ids=["writer", "loader", "waits", "framework", "all wait", "two work"],
)
def test_a_task_is_where_its_program_is(
    first: tuple[StackFrame, ...],
    others: tuple[tuple[StackFrame, ...], ...],
    where: tuple[StackFrame, ...] | None,
) -> None:
    """Given a first thread that waits for the work of another one, when a framework has a thread
    beside that of the program, as the chief's that writes summaries, then the task is in the
    user's code, and of several such threads in the one that works. Where several do, none tells."""
    threads = [ThreadStack("main", first), *(ThreadStack("0x7f", frames) for frames in others)]
    found = task(0, ProcessStack(7, "python train.py", "python", "sleeps", tuple(threads)))
    assert found.stack == (where or first)


def test_one_of_twelve_stands_elsewhere() -> None:
    """The smallest group comes first, and names what the others wait for."""
    late, rest = task(3, process(*USER)), [task(n, process(*WAIT)) for n in range(12) if n != 3]
    found = taken(*rest[:3], late, *rest[3:])
    lines = [f"{group.title} — {group.where}" for group in found.groups]
    assert lines == [
        "1 task: worker:3 — __next__ data.py:12 ← step train.py:41",
        "11 tasks: worker:0–2, 4–11 — step train.py:44 → all_reduce distributed.py:2806",
    ]
    assert found.headline() == (
        "worker:3 is in __next__ data.py:12; 11 others wait in step train.py:44"
    )
    silent = {TaskId("worker", 3): 62.4}
    assert "is in __next__ data.py:12 for 62 s; 11 others" in found.headline(silent)


def test_folders_differ_from_host_to_host() -> None:
    """Equal code in other folders is one place; another line is another one."""
    here = process(StackFrame("f", "/home/u/x/train.py", 5))
    there = process(StackFrame("f", "/root/.local/state/tfmux/r/b/work/train.py", 5))
    other = process(StackFrame("f", "/home/u/x/train.py", 6))
    groups = taken(task(0, here), task(1, there, host="b"), task(2, other)).groups
    assert [len(group.tasks) for group in groups] == [1, 2]


def test_what_the_kernel_says_is_a_place_too() -> None:
    """The program and the kernel's function tell groups apart."""
    pipes = [
        task(n, process(way="proc", command="/bin/cat", state="sleeps in pipe_read"))
        for n in range(3)
    ]
    sleeps = task(3, process(way="proc", command="sleep 5", state="sleeps in hrtimer_nanosleep"))
    first, second = taken(*pipes, sleeps).groups
    assert (first.where, len(second.tasks)) == ("sleep sleeps in hrtimer_nanosleep", 3)
    assert second.where == "cat sleeps in pipe_read"


def test_the_interpreter_behind_a_shell_stands_for_its_task() -> None:
    """Else the last process that the shell has started."""
    shell = process(way="proc", command="sh -c x", state="sleeps in do_wait", pid=1)
    python, child = process(*USER, pid=2), process(way="proc", command="sleep 9", pid=3)
    assert task(0, shell, python, child).main is python
    assert task(0, shell, child).main is child


MONITOR = (
    StackFrame("_invoke_run", "/x/site-packages/torch/distributed/elastic/agent/api.py", 951),
    StackFrame("<module>", "/x/bin/torchrun", 8),
)
POPEN = (
    StackFrame("_try_wait", "/usr/lib/python3.11/subprocess.py", 1925),
    StackFrame("simple_launcher", "/x/site-packages/accelerate/commands/launch.py", 630),
)
IDLE_LOADER = (
    StackFrame("_poll", "/usr/lib/python3.11/multiprocessing/connection.py", 931),
    StackFrame("<module>", "/srv/a/train.py", 3),
)


@pytest.mark.parametrize("starter", [MONITOR, POPEN])
def test_a_task_that_starts_others_is_where_these_are(starter: tuple[StackFrame, ...]) -> None:
    """Given a launcher of several ranks, then its task is where one of them is in the user's own
    code, else where the first of them is; a loader that waits is none, and a launcher that has
    started nothing yet is where it is itself."""
    first, *ranks = (process(*starter), process(*WAIT, pid=8), process(*IDLE_LOADER, pid=9))
    late = process(*USER, pid=10)
    assert task(0, first, *ranks).stack == WAIT
    assert task(0, first, *ranks, late).stack == USER
    assert task(0, first).stack == starter
    assert task(0, late, *ranks).stack == task(0, late).stack == USER


def test_ranks_below_a_launcher_are_known_by_their_numbers() -> None:
    """The first process of each rank; loaders of data that it has forked have its number, too. A
    task that starts none has none, whatever its environment says."""
    ranks = [process(*WAIT, pid=8, rank=4), process(*USER, pid=9, rank=5)]
    loader = process(*IDLE_LOADER, pid=10, rank=4)
    found = task(0, process(*MONITOR, rank=0), *ranks, loader).ranks
    known = {TaskRank(TaskId("worker", 0), 4, 8): ranks[0]}
    assert found == known | {TaskRank(TaskId("worker", 0), 5, 9): ranks[1]}
    assert not task(0, ranks[0], loader).ranks
    mpirun = process(way="proc", command="mpirun -np 2 x", state="sleeps in do_poll")
    assert task(0, mpirun, *ranks, loader).ranks == found
    assert next(ranks[0].lines()) == "  process 8, rank 4: python train.py"


JOINS = (
    StackFrame("select", "/usr/lib/python3.11/selectors.py", 415),
    StackFrame("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947),
    StackFrame("join", "/x/site-packages/torch/multiprocessing/spawn.py", 140),
    StackFrame("<module>", "/srv/a/train.py", 22),
)
BOOTSTRAP = (
    StackFrame("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
    StackFrame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
)
FORKED = (*BOOTSTRAP, StackFrame("<module>", "/srv/a/train.py", 21))
SPAWN = "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=4)"
WORKS = StackFrame("_worker_loop", "/x/site-packages/torch/utils/data/_utils/worker.py", 300)


def child(pid: int, *frames: StackFrame, **said: Any) -> ProcessStack:
    return replace(process(*frames, pid=pid, **said), parent=7)


def test_ranks_of_mp_spawn_are_known_by_the_order_of_their_start() -> None:
    """Their rank stands in no environment and on no command line. One that is stopped shows no
    stack, and one that has ended and has not been waited for keeps its number; loaders of data and
    the tracker of resources are none, and one alone is no rank."""
    parent = process(*JOINS)
    file = "/usr/lib/python3.11/multiprocessing/resource_tracker.py"
    tracker = child(8, StackFrame("main", file, 227))
    first, last = child(10, *WAIT, *BOOTSTRAP), child(13, *USER, *FORKED)
    ended = child(11, way="proc", command="", state="has ended")
    stopped = child(12, way="proc", command=SPAWN, state="is stopped")
    loader = child(14, *QUEUE, WORKS, *FORKED)
    found = task(0, parent, tracker, first, ended, stopped, last, loader)
    assert [(one.rank, one.pid, one.told) for one in found.ranks] == [
        (0, 10, False),
        (2, 12, False),
        (3, 13, False),
    ]
    assert found.stack == last.stack
    assert not task(0, parent, tracker, first, loader).ranks
    assert not task(0, process(*USER), first, last).ranks
    below = replace(child(15, *USER, *FORKED), parent=13)
    assert task(0, parent, first, last, below).processes_of(list(found.ranks)[2]) == (last, below)


def test_ranks_of_tasks_are_grouped_by_themselves() -> None:
    """A rank below torchrun that is elsewhere is a group of its own, beside that of the others; the
    group of the guilty rank is marked, and that of the other ranks of its task is not."""
    monitor = process(*MONITOR)
    ranks = [process(*(USER if n == 3 else WAIT), pid=10 + n, rank=n) for n in range(4)]
    tasks = (task(0, monitor, *ranks[:2]), task(1, monitor, *ranks[2:]), task(2, process(*WAIT)))
    odd = TaskRank(TaskId("worker", 1), 3, 13)
    verdict = Verdict((odd.task,), Kind.STUCK, True, "rank 3", ranks=(odd,))
    found = Stacks(1000.0, tasks, verdict=verdict)
    assert [one.title for one in found.groups] == [
        "1 rank: worker:1 rank 3",
        "1 task, 3 ranks: worker:2, worker:0 ranks 0–1, worker:1 rank 2",
    ]
    assert list(map(found.blames, found.groups)) == [True, False]
    assert found.headline() == (
        "worker:1 rank 3 is in __next__ data.py:12; 4 others wait in step train.py:44"
    )
    jsonschema.validate(record(found), schema())
    assert record(found)["groups"][0]["ranks"] == [
        {"task": "worker:1", "rank": 3, "pid": 13, "told": True}
    ]
    alike = taken(task(0, monitor, *ranks[:2]))
    assert alike.headline() == "all 2 ranks are in step train.py:44"


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (True, "ps:0, worker:0 ranks 0–2, 5, worker:1 rank 6"),
        (False, "ps:0, worker:0 local ranks 0–2, 5, worker:1 process 46 (probably local rank 6)"),
    ],
)
def test_ranks_are_named_in_short(told: bool, names: str) -> None:
    """Tasks first; numbers that are a guess are never named as if they were known."""
    ranks = [TaskRank(TaskId("worker", n // 6), n, 40 + n, told) for n in (0, 1, 2, 5, 6)]
    assert named_ranks([*ranks, TaskId("ps", 0)]) == names


def test_a_process_in_full_says_how_it_was_looked_at() -> None:
    """`/proc` is the way for any process, and is not named."""
    assert list(process(*WAIT[1:]).lines())[:3] == [
        "  process 7: python train.py",
        "    runs; stack by python",
        "    thread main",
    ]
    assert "    runs" in process(way="proc").lines()


def test_a_stack_is_named_by_the_users_own_code() -> None:
    """Given a stack whose innermost frames are a library's, then the user's frame comes first: the
    end of the line has no room at 80 columns. The program that starts a task is not the user's."""
    library = [StackFrame(f"f{n}", f"/x/site-packages/m{n}.py", n) for n in range(9)]
    own, base = StackFrame("step", "/srv/train.py", 41), StackFrame("<module>", "/srv/train.py", 90)
    starter = StackFrame("<module>", "/root/.cache/tfmux/run/tools/warm.py", 162)
    frames = (*library, own, base, starter)
    assert described(frames) == "step train.py:41 → … → f0 m0.py:0"
    assert described(frames[8:]) == "step train.py:41 → f8 m8.py:8"
    callers = "<module> train.py:90 ← <module> warm.py:162"
    assert described(frames[-3:]) == f"step train.py:41 ← {callers}"
    assert described((own, base, own, base)).endswith("← step train.py:41 ← …")
    assert described((*library, starter)) == "f0 m0.py:0 ← f1 m1.py:1 ← f2 m2.py:2 ← …"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["worker:0"], "worker:0"),
        (["worker:2", "worker:0", "worker:1"], "worker:0–2"),
        (["ps:0", "worker:0", "worker:2", "worker:3"], "ps:0, worker:0, 2–3"),
        ([f"w:{n}" for n in range(0, 100, 2)], ", ".join(["w:0", *map(str, range(2, 24, 2)), "…"])),
    ],
)
def test_names_of_tasks_in_short(names: list[str], text: str) -> None:
    assert named_tasks(map(TaskId.parse, names)) == text


def test_headlines() -> None:
    """One place, several, none."""
    same = [task(n, process(*WAIT)) for n in range(3)]
    assert taken().headline() == ""
    assert taken(*same).headline() == "all 3 tasks are in step train.py:44"
    assert taken(same[0]).headline() == "worker:0 is in step train.py:44"
    more = [task(5, process(*USER)), task(6, process(StackFrame("g", "/srv/c.py", 1)))]
    assert taken(*same, *more).headline() == (
        "worker:5 is in __next__ data.py:12; 3 others wait in step train.py:44; "
        "1 more in other places"
    )


@examples(30)
@given(st.text(), st.integers(0, 1 << 22))
def test_no_text_breaks_the_readers_of_tracebacks(text: str, pid: int) -> None:
    for threads in (parse_faulthandler(text), parse_py_spy(text, pid)):
        assert all(isinstance(name, str) for name, _ in threads)


def test_tracebacks_of_interpreters_are_read() -> None:
    """The oldest thread is the main thread, whichever got the signal; 3.14 names threads."""
    text = (
        'Thread 0x00007f01 [pool-1] (most recent call first):\n  File "/a/b.py", line 3 in work\n\n'
        "Current thread 0x00007f02 (most recent call first):\n  <no Python frame>\n\n"
        'Thread 0x00007f03 (most recent call first):\n  File "/a/t.py", line 9 in f (g)\n'
        '  File "<string>", line ??? in <module>\n'
    )
    assert parse_faulthandler(text) == [
        ("main", (("f (g)", "/a/t.py", 9), ("<module>", "<string>", 0))),
        ("0x00007f02", ()),
        ("pool-1", (("work", "/a/b.py", 3),)),
    ]
    assert parse_faulthandler(text + "\n...\n")[0][0] == "0x00007f03"  # it may not be among these


def test_unanswered_stand_in_the_record() -> None:
    found = Stacks(1.0, (), (Unanswered("tf3", "cannot be reached"),))
    made = record(found)
    assert made["unanswered"] == [{"name": "tf3", "reason": "cannot be reached"}]
    jsonschema.validate(made, schema())
