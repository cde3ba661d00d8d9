"""The verdict on a run that failed or hangs: a table of what is known, and who is guilty.

Four ranks, `worker:0` to `worker:3` on tf1 to tf4, unless a case says otherwise. Lines have the
form in which torch with gloo and NCCL, JAX, TensorFlow and MPI print them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.ids import TaskId, TaskRank
from launcher.run.cause import Evidence, Kind
from launcher.run.last_words import misses_a_peer
from launcher.run.stack_groups import StackFrame
from launcher.run.verdict import TaskEvidence, judge

SITE = "/venv/lib/python3.11/site-packages/"
ALL_REDUCE = (
    StackFrame("all_reduce", f"{SITE}torch/distributed/distributed_c10d.py", 3913),
    StackFrame("wrapper", f"{SITE}torch/distributed/c10d_logger.py", 83),
    StackFrame("<module>", "/job/train.py", 20),
)
ALLGATHER = (
    StackFrame("_handle_array_process_allgather", f"{SITE}jax/multihost_utils.py", 134),
    StackFrame("<module>", "/job/train.py", 29),
)
EXECUTE = (
    StackFrame("quick_execute", f"{SITE}tensorflow/python/eager/execute.py", 53),
    StackFrame("<module>", "/job/train.py", 31),
)
SHUTDOWN = (
    StackFrame("shutdown", f"{SITE}jax/_src/distributed.py", 199),
    StackFrame("clean_up", f"{SITE}jax/_src/api.py", 2582),
)
LIBRARY = "/usr/lib/python3.11/"
JOIN = (
    StackFrame("join", f"{SITE}tensorflow/server_lib.py", 170),
    StackFrame("<module>", "/job/train.py", 9),
)
THREADS_END = (
    StackFrame("_wait_for_tstate_lock", f"{LIBRARY}threading.py", 1139),
    StackFrame("_shutdown", f"{LIBRARY}threading.py", 1580),
)
AT_EXIT = (StackFrame("save", "/job/train.py", 7),)
POOL = (
    StackFrame("_wait_for_tstate_lock", f"{LIBRARY}threading.py", 1139),
    StackFrame("join", f"{LIBRARY}threading.py", 1119),
    StackFrame("shutdown", f"{LIBRARY}concurrent/futures/thread.py", 235),
    StackFrame("<module>", "/job/train.py", 30),
)
THREADS = (
    StackFrame("_wait_for_tstate_lock", f"{LIBRARY}threading.py", 1139),
    StackFrame("join", f"{LIBRARY}threading.py", 1119),
    StackFrame("run", "/job/stop.py", 115),
    StackFrame("<module>", "/job/train.py", 30),
)
LOADER = (StackFrame("next_batch", "/job/data.py", 12), StackFrame("<module>", "/job/train.py", 18))
TRAINS = (StackFrame("step", "/job/train.py", 44), StackFrame("<module>", "/job/train.py", 60))


def traceback(
    text: str, file: str = "/job/train.py", line: int = 20, prefix: str = ""
) -> list[str]:
    return [
        f"{prefix}Traceback (most recent call last):",
        f'{prefix}  File "{file}", line {line}, in <module>',
        f"{prefix}    loss.backward()",
        f'{prefix}  File "{SITE}torch/autograd.py", line 7, in backward',
        f"{prefix}{text}",
    ]


def reset(peer: int) -> list[str]:
    """Torch with gloo, which lost its connection to a rank."""
    text = f"RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [10.0.0.{peer + 1}]:30902: "
    return traceback(f"{text}Connection reset by peer. This is typically caused by a remote worker")


def closed(peer: int) -> list[str]:
    text = f"RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.{peer + 1}]:229"
    return traceback(text, prefix="[rank0]: ")


TIMED_OUT = traceback(
    "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete"
)
WAITING = "CreateSession still waiting for response from worker: /job:worker/replica:0/task:1"
TERMED = ["W1127 preemption_notifier.cc:90] SIGTERM caught at 2026-11-27T08:58:56+00:00"]


def jax_lost(rank: int) -> list[str]:
    return [
        "E1127 coordination_service.cc:1549] Use error polling to propagate the following error to "
        "all tasks: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):",
        str(rank),
        "The tasks have crashed. Check the task logs for an earlier error.",
        "F1127 client.h:80] Terminating process because the JAX distributed service detected fatal "
        "errors. This most likely indicates that another task died",
    ]


def tf_lost(index: int) -> list[str]:
    return [
        *traceback(
            "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:"
        ),
        "Collective ops is aborted by: Error reported from /job:worker/task:"
        f"{index}: The following tasks are unhealthy (stopped sending heartbeats):",
        f"/job:worker/replica:0/task:{index}",
        "The tasks have crashed.",
    ]


def watchdog(
    seq: int, op: str = "ALLREDUCE", size: int = 64, enqueued: int | None = None
) -> list[str]:
    return [
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, "
        "Timeout(ms)=600000) ran for 600026 milliseconds before timing out.",
        f"[Rank 1] Timeout at NCCL work: {seq}, last enqueued NCCL work: {enqueued or seq}, last "
        f"completed NCCL work: {seq - 1}.",
    ]


def desync(rank: int, lines: list[str]) -> list[str]:
    """With TORCH_NCCL_DESYNC_DEBUG."""
    return [
        *lines,
        "[rank0]:[E515 18:36:47 ProcessGroupNCCL.cpp:1937] Rank 0",
        "     - [0] Timeout at collective: ALLREDUCE, #315",
        "   - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        f"     [{rank}] finished collective #182, but didn't join collective #183 (count from 1)",
        "     - Snapshot of ranks' latest states:",
        "       #182 finished ranks:",
        f"         [{rank}] finished ALLREDUCE",
        "       #315 started ranks:",
        "         [0, 1, 3] started ALLREDUCE",
    ]


NEVER = (
    "     - To our best knowledge, ranks [1] are the lagging ranks that caused this timeout. They "
    "never joined any collectives"
)


def fingerprint(rank: int, op: str) -> list[str]:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    other = "BROADCAST" if op == "ALLREDUCE" else "ALLREDUCE"
    return traceback(
        "RuntimeError: Detected mismatch between collectives on ranks. "
        f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=5, OpType={op}, "
        f"TensorShape=[10, 10], TensorDtypes=Float), but Rank {1 - min(rank, 1)} is running "
        f"collective: CollectiveFingerPrint(SequenceNumber=5, OpType={other})."
    )


def task(index: int, **known: Any) -> TaskEvidence:
    tail = tuple(known.pop("tail", ()))
    name = known.pop("name", "worker")
    return replace(
        TaskEvidence(
            TaskId(name, index), f"tf{index + 1}", index, (f"10.0.0.{index + 1}",), tail=tail
        ),
        **{"seen_twice": True, **known},
    )


def victim(index: int, tail: list[str], at: float = 20.0, **known: Any) -> TaskEvidence:
    return task(index, tail=tail, status=1, ended_at=at, **known)


def ended(index: int, **known: Any) -> TaskEvidence:
    """Ended by our own side, after the failure of another."""
    return task(
        index, **{"signal": "TERM", "by_us": True, "ended_at": 21.0, "tail": TERMED, **known}
    )


def others(guilty: int, make: Any) -> list[TaskEvidence]:
    return [make(index) for index in range(4) if index != guilty]


BAD = traceback("ValueError: bad sample in shard 17", "/job/data.py", 13)
NO_MODULE = traceback("ModuleNotFoundError: No module named 'numpy'", "/job/train.py", 1)

CASES: dict[str, tuple[list[TaskEvidence], tuple[int, ...] | None, Kind | None, bool | None]] = {}


def case(
    name: str,
    facts: list[TaskEvidence],
    guilty: int | tuple[int, ...] | None,
    kind: Kind | None = None,
    sure: bool | None = True,
) -> None:
    assert name not in CASES
    tasks = (guilty,) if isinstance(guilty, int) else guilty
    CASES[name] = (sorted(facts, key=lambda one: str(one.task)), tasks, kind, sure)


for rank in range(4):
    lost = {
        "torch": lambda index, rank=rank: victim(index, reset(rank)),
        "jax": lambda index, rank=rank: victim(index, jax_lost(rank), signal=None),
        "tensorflow": lambda index, rank=rank: victim(index, tf_lost(rank)),
    }
    for framework, one in lost.items():
        case(
            f"{framework}: rank {rank} raises",
            [task(rank, tail=BAD, status=1, ended_at=19.9), *others(rank, one)],
            rank,
            Kind.RAISED,
        )
        case(
            f"{framework}: rank {rank} leaves with 0",
            [task(rank, tail=["step 4 loss 0.2"], status=0, ended_at=15.0), *others(rank, one)],
            rank,
            Kind.LEFT_EARLY,
        )
    case(
        f"torch: rank {rank} is killed, the rest is ended",
        [task(rank, signal="KILL", ended_at=20.0), *others(rank, ended)],
        rank,
        Kind.KILLED,
    )
    case(
        f"rank {rank} is stopped, and all others wait in a collective",
        [task(rank, stopped="is stopped"), *others(rank, lambda i: task(i, stack=ALL_REDUCE))],
        rank,
        Kind.STOPPED,
    )
    case(
        f"rank {rank} is in its loader, and all others wait",
        [task(rank, stack=LOADER), *others(rank, lambda i: task(i, stack=ALLGATHER))],
        rank,
        Kind.STUCK,
    )
ECC = traceback("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
LAUNCH = traceback("RuntimeError: CUDA error: unspecified launch failure")
XID = "GPU 3 has reported Xid 79 (the GPU has fallen off the bus)"
case(
    "a GPU falls off the bus, and its rank raises",
    [task(1, tail=LAUNCH, status=1, gpu_fault=XID), *others(1, lambda i: victim(i, reset(1)))],
    1,
    Kind.GPU,
)
case(
    "a GPU falls off the bus, and its rank is killed by a signal",
    [task(1, signal="ABRT", ended_at=19.0, gpu_fault=XID), *others(1, ended)],
    1,
    Kind.GPU,
)
case(
    "a GPU falls off the bus, and all hang",
    [
        task(1, stack=ALL_REDUCE, gpu_fault=XID, hangs_for=60.0),
        *others(1, lambda i: task(i, stack=ALL_REDUCE, hangs_for=60.0)),
    ],
    1,
    Kind.GPU,
)
case(
    "a rank says itself that its GPU's memory has failed",
    [task(2, tail=ECC, status=1, ended_at=19.0), *others(2, ended)],
    2,
    Kind.GPU,
)
case(
    "a GPU has a fault, and another rank has raised what no GPU is the cause of",
    [ended(0), ended(1, gpu_fault=XID), ended(2), task(3, tail=BAD, status=1, ended_at=19.0)],
    3,
    Kind.RAISED,
)
case(
    "a GPU has a fault, and its rank has raised what no GPU is the cause of",
    [task(1, tail=BAD, status=1, ended_at=19.0, gpu_fault=XID), *others(1, ended)],
    1,
    Kind.RAISED,
)
case(
    "a GPU has a fault, and its rank has ended well",
    [task(1, status=0, gpu_fault=XID), *others(1, lambda i: task(i, status=0))],
    None,
)
case(
    "the victims name each other, and one of them the guilty one",
    [
        victim(0, closed(1)),
        victim(1, reset(2)),
        task(2, status=0, ended_at=19.0),
        victim(3, reset(2)),
    ],
    2,
    Kind.LEFT_EARLY,
)
case(
    "an exit of 4 seconds: the victims come first, the exception is in the log of one that is last",
    [victim(0, reset(3), 17.0), victim(1, closed(3), 17.1), ended(2), task(3, tail=BAD, status=1)],
    3,
    Kind.RAISED,
)
case(
    "a rank that has raised hangs in the shutdown barrier, and lives",
    [*others(2, lambda i: task(i, stack=ALLGATHER)), task(2, tail=BAD, stack=SHUTDOWN)],
    2,
    Kind.RAISED,
)
case(
    "the same when a person has ended the run",
    [
        *others(2, lambda i: ended(i, stack=ALLGATHER)),
        task(2, tail=[*BAD, *TERMED], stack=SHUTDOWN, signal="KILL", by_us=True),
    ],
    2,
    Kind.RAISED,
)
case(
    "a program that prints tracebacks and goes on has raised nothing",
    [
        task(0, tail=[*BAD, "skipped"], stack=LOADER),
        *others(0, lambda i: task(i, stack=ALL_REDUCE)),
    ],
    0,
    Kind.STUCK,
)
case(
    "a rank is leaving without an exception while others work",
    [task(1, stack=SHUTDOWN), *others(1, lambda i: task(i, stack=ALLGATHER))],
    1,
    Kind.LEFT_EARLY,
)
case(
    "a segmentation fault",
    [task(1, signal="SEGV", ended_at=20.0), *others(1, lambda i: victim(i, reset(1), 20.4))],
    1,
    Kind.KILLED,
)
case(
    "out of memory in torch's words",
    [
        task(
            1,
            tail=traceback("torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"),
            status=1,
        ),
        *others(1, lambda i: victim(i, closed(1))),
    ],
    1,
    Kind.RAISED,
)
case(
    "an aborted victim of JAX is no crash of its own",
    [
        task(0, tail=jax_lost(3), signal="ABRT", ended_at=20.0),
        task(1, tail=jax_lost(3), signal="ABRT", ended_at=20.0),
        task(2, tail=jax_lost(3), signal="ABRT", ended_at=20.0),
        task(3, stopped="is stopped", signal="KILL", by_us=True, ended_at=30.0),
    ],
    3,
    Kind.STOPPED,
)
case(
    "nobody was looked at: the heartbeats name the rank",
    [*others(3, lambda i: victim(i, jax_lost(3))), ended(3, signal="KILL")],
    3,
    Kind.NAMED,
    False,
)
case(
    "time-outs name nobody: the one that was in none is probably the one",
    [*others(1, lambda i: victim(i, TIMED_OUT)), ended(1)],
    1,
    Kind.STUCK,
    False,
)
case(
    "the same with stacks",
    [
        *others(1, lambda i: victim(i, TIMED_OUT, stack=ALL_REDUCE)),
        ended(1, stack=LOADER),
    ],
    1,
    Kind.STUCK,
)
case(
    "a host has lost power",
    [task(2, lost_at=15.0), *others(2, lambda i: victim(i, reset(2)))],
    2,
    Kind.HOST_LOST,
)
case(
    "two ranks of one host have lost it",
    [
        task(0, stack=ALL_REDUCE),
        task(1, stack=ALL_REDUCE),
        task(2, host="tf3", lost_at=15.0),
        task(3, host="tf3", lost_at=15.0),
    ],
    (2, 3),
    Kind.HOST_LOST,
)
SESSION = (
    StackFrame("_call_tf_sessionrun", f"{SITE}tensorflow/python/client/session.py", 1477),
    StackFrame("take_steps", "/job/rounds.py", 101),
    StackFrame("<module>", "/job/train.py", 60),
)


def in_library(text: str) -> list[str]:
    """A traceback that ends in installed code."""
    return traceback(text)


def in_own_code(text: str) -> list[str]:
    """A traceback that ends in the user's own code."""
    return [*traceback(text, "/job/data.py", 13)[:3], text]


case(
    "a ps is lost, and its silent workers do nothing",
    [
        task(0, name="ps", lost_at=15.0, serves=True),
        *(task(index, stack=SESSION, idle=True) for index in range(3)),
    ],
    None,
    Kind.HOST_LOST,
)
case(
    "a worker is lost, and the others compute in silence",
    [task(2, lost_at=15.0), *others(2, lambda i: task(i, stack=SESSION))],
    2,
    Kind.HOST_LOST,
    False,
)
case(
    "a chief is lost, and one look has found the others idle",
    [
        task(0, name="chief", lost_at=15.0),
        *(task(index, stack=SESSION, idle=True, seen_twice=False) for index in (1, 2)),
    ],
    0,
    Kind.HOST_LOST,
    False,
)
TELLS = "worker:2 waits for worker:1 (tf2:17580): timed out"
case(
    "a worker is lost, and the others tell again and again that they wait for it",
    [
        task(1, lost_at=15.0),
        task(0, stack=SESSION, idle=True),
        *(task(index, stack=SESSION, tail=["step 3", TELLS], wrote=True) for index in (2, 3)),
    ],
    1,
    Kind.HOST_LOST,
)
case(
    "a worker is lost, and another one goes on writing",
    [
        task(1, lost_at=15.0),
        task(0, stack=SESSION, idle=True),
        task(2, stack=SESSION, idle=True, wrote=True, tail=["batch 7"]),
    ],
    1,
    Kind.HOST_LOST,
    False,
)
case(
    "a worker is lost, and the ps and an idle worker are what is left",
    [
        task(1, lost_at=15.0),
        task(0, stack=SESSION, idle=True),
        task(9, name="ps", serves=True, stack=JOIN),
    ],
    1,
    Kind.HOST_LOST,
)
case(
    "a host is lost, and minutes later another worker crashes",
    [
        task(3, lost_at=15.0),
        task(1, signal="SEGV", ended_at=500.0),
        *(ended(index, ended_at=501.0) for index in (0, 2)),
    ],
    3,
    Kind.HOST_LOST,
    False,
)
case(
    "a host is lost, and later a library raises an unknown exception",
    [
        task(3, lost_at=15.0),
        task(1, tail=in_library("RuntimeError: shard 3 does not answer"), status=1, ended_at=80.0),
        *(ended(index, ended_at=81.0) for index in (0, 2)),
    ],
    3,
    Kind.HOST_LOST,
    False,
)
case(
    "a host is lost, and later another worker raises in its own code",
    [
        task(3, lost_at=15.0),
        task(1, tail=in_own_code("ValueError: bad sample"), status=1, ended_at=80.0),
        *(ended(index, ended_at=81.0) for index in (0, 2)),
    ],
    1,
    Kind.RAISED,
    False,
)
case(
    "a host is lost, and later the kernel kills another worker for its memory",
    [
        task(3, lost_at=15.0),
        task(1, signal="KILL", out_of_memory=True, ended_at=80.0),
        *(ended(index, ended_at=81.0) for index in (0, 2)),
    ],
    1,
    Kind.OUT_OF_MEMORY,
    False,
)
case(
    "a worker crashes, and a host is lost while the rest is ended",
    [
        task(1, signal="SEGV", ended_at=14.0),
        task(3, lost_at=15.0),
        *(ended(index, ended_at=16.0) for index in (0, 2)),
    ],
    1,
    Kind.KILLED,
)
case(
    "a rank leaves with 0, the others miss it, and then a host is lost",
    [
        task(1, status=0, ended_at=9.0),
        task(3, lost_at=15.0),
        *(victim(index, reset(1), at=10.0) for index in (0, 2)),
    ],
    1,
    Kind.LEFT_EARLY,
)
case(
    "two hosts are lost together, and a third one long after them",
    [
        task(0, stack=ALL_REDUCE),
        task(1, lost_at=15.0),
        task(2, lost_at=19.0),
        task(3, lost_at=300.0),
    ],
    (1, 2),
    Kind.HOST_LOST,
)
case(
    "a host was cut off for longer than its lease, and is back",
    [
        ended(2, ended_at=70.0, lost_at=15.0),
        *others(2, lambda i: ended(i, ended_at=90.0)),
    ],
    2,
    Kind.HOST_LOST,
)
case(
    "a host is lost, a rank that has raised hangs in its exit since then",
    [
        task(3, lost_at=15.0),
        task(0, tail=in_library("RuntimeError: no answer"), stack=SHUTDOWN),
        *(task(index, stack=ALLGATHER) for index in (1, 2)),
    ],
    3,
    Kind.HOST_LOST,
)
case(
    "a process waits in the kernel for a disk",
    [
        task(3, stopped="waits in the kernel (D): nfs_wait"),
        *others(3, lambda i: task(i, stack=EXECUTE)),
    ],
    3,
    Kind.STOPPED,
)
ACTOR = [
    *traceback(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    ),
    "\tclass_name: Trainer",
    "\tpid: 16424",
    "\tip: 10.0.0.2",
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
]
case(
    "the driver of Ray tells of an actor's death, and nothing tells whose it was",
    [victim(0, ACTOR), *others(0, ended)],
    None,
    None,
    None,
)
case(
    "the driver of Ray tells of an actor's death, and a node was killed before",
    [victim(0, ACTOR), task(1, signal="KILL", ended_at=19.0), ended(2)],
    1,
    Kind.KILLED,
)
case(
    "all fail alike",
    [victim(i, NO_MODULE, 3.0 + i / 10) for i in range(4)],
    (0, 1, 2, 3),
    Kind.ALIKE,
)
case(
    "all fail alike, with numbers of their own",
    [victim(i, traceback(f"RuntimeError: CUDA error on cuda:{i}")) for i in range(4)],
    (0, 1, 2, 3),
    Kind.ALIKE,
)
case(
    "two raise, one long before the other",
    [
        task(0, tail=BAD, status=1, ended_at=10.0),
        task(1, tail=traceback("KeyError: 'label'"), status=1, ended_at=14.0),
        ended(2),
        ended(3),
    ],
    0,
    Kind.RAISED,
)
case(
    "two raise at the same time",
    [
        task(0, tail=BAD, status=1, ended_at=10.0),
        task(1, tail=traceback("KeyError: 'label'"), status=1, ended_at=10.1),
        ended(2),
        ended(3),
    ],
    0,
    Kind.RAISED,
    False,
)
case(
    "two raise at the same time, and the others name one of them",
    [
        task(0, tail=BAD, status=1, ended_at=10.1),
        task(1, tail=traceback("KeyError: 'label'"), status=1, ended_at=10.0),
        victim(2, reset(1)),
        victim(3, reset(1)),
    ],
    1,
    Kind.RAISED,
)
case(
    "a status without a word",
    [task(1, tail=["cannot open data.bin"], status=2, ended_at=5.0), *others(1, ended)],
    1,
    Kind.FAILED,
)
case(
    "a status without a word beside victims",
    [
        task(1, tail=["usage: train.py"], status=2, ended_at=5.0),
        *others(1, lambda i: victim(i, closed(1))),
    ],
    1,
    Kind.FAILED,
)
case(
    "a single task raises",
    [task(0, tail=BAD, status=1, ended_at=2.0)],
    0,
    Kind.RAISED,
)
case(
    "a ps is killed, and its workers cannot reach it",
    [
        task(0, name="ps", signal="KILL", ended_at=9.0),
        *(
            victim(i, traceback("tensorflow.errors_impl.UnavailableError: Socket closed"))
            for i in range(2)
        ),
    ],
    None,
    Kind.KILLED,
)
case(
    "a session waits for a task that has left",
    [
        task(1, status=0, ended_at=3.0),
        *(
            task(
                index,
                tail=[WAITING] * 6,
                stack=EXECUTE,
            )
            for index in (0, 2)
        ),
    ],
    1,
    Kind.LEFT_EARLY,
)
case(
    "NCCL: one rank has begun fewer operations",
    [
        victim(0, watchdog(133112)),
        victim(1, watchdog(133112)),
        victim(2, watchdog(133111)),
        victim(3, watchdog(133112)),
    ],
    2,
    Kind.STUCK,
)

case(
    "NCCL: one rank is in another operation",
    [
        victim(0, watchdog(5, "BROADCAST")),
        victim(1, watchdog(5)),
        victim(2, watchdog(5)),
        victim(3, watchdog(5)),
    ],
    0,
    Kind.STUCK,
)
case(
    "NCCL: one of three ranks is in another operation",
    [victim(0, watchdog(5, "BROADCAST")), victim(1, watchdog(5)), victim(2, watchdog(5))],
    0,
    Kind.STUCK,
    sure=False,
)
case(
    "NCCL: one rank has another size",
    [
        victim(0, watchdog(5)),
        victim(1, watchdog(5)),
        victim(2, watchdog(5, size=63)),
        victim(3, watchdog(5)),
    ],
    2,
    Kind.STUCK,
)
case(
    "NCCL: all alike, and one that said nothing",
    [*others(2, lambda i: victim(i, watchdog(7))), ended(2)],
    2,
    Kind.STUCK,
    False,
)
case(
    "a monitored barrier names a rank",
    [
        victim(0, traceback("RuntimeError: Rank 3 failed to pass monitoredBarrier in 30000 ms")),
        ended(1),
        ended(2),
        ended(3),
    ],
    3,
    Kind.NAMED,
    False,
)
case(
    "NCCL: a report of the collectives names the rank that is behind",
    [*others(2, lambda i: victim(i, desync(2, watchdog(241)))), ended(2)],
    2,
    Kind.STUCK,
)
case(
    "NCCL: a report of the collectives names the rank that has joined none",
    [*others(1, lambda i: victim(i, [*watchdog(1), NEVER])), ended(1)],
    1,
    Kind.STUCK,
)
case(
    "c10d: one rank runs another collective than all others",
    [
        victim(0, fingerprint(0, "ALLREDUCE")),
        victim(1, fingerprint(1, "BROADCAST")),
        victim(2, fingerprint(2, "ALLREDUCE")),
        victim(3, fingerprint(3, "ALLREDUCE")),
    ],
    1,
    Kind.STUCK,
)
case(
    "the kernel has killed one for want of memory",
    [
        task(1, signal="KILL", out_of_memory=True, ended_at=20.0),
        *others(1, lambda i: victim(i, reset(1), 20.4)),
    ],
    1,
    Kind.OUT_OF_MEMORY,
)
# Runs that hang: nobody has ended.
case(
    "a rank is in its loader, and a ps serves",
    [
        task(0, name="ps", stack=JOIN, serves=True),
        *others(1, lambda i: task(i, stack=EXECUTE, hangs_for=12.0)),
        task(1, stack=LOADER, hangs_for=12.0),
    ],
    1,
    Kind.STUCK,
)
case(
    "one has stalled while others go on",
    [
        task(1, stack=LOADER, hangs_for=40.0),
        *others(1, lambda i: task(i, stack=TRAINS, moves=True)),
    ],
    1,
    Kind.STUCK,
)
case(
    "one that waits has stalled while others go on",
    [
        task(1, stack=ALL_REDUCE, hangs_for=40.0),
        *others(1, lambda i: task(i, stack=TRAINS, moves=True)),
    ],
    1,
    Kind.STUCK,
    False,
)
case(
    "two wait for a third one, and the fourth goes on",
    [
        task(0, stack=ALL_REDUCE, hangs_for=40.0),
        task(1, stack=ALL_REDUCE, hangs_for=40.0),
        task(2, stack=LOADER, hangs_for=40.0),
        task(3, stack=TRAINS, moves=True),
    ],
    2,
    Kind.STUCK,
)
case(
    "a rank is in its loader, and the chief waits for several threads of its own",
    [
        task(0, stack=THREADS, hangs_for=12.0),
        task(1, stack=EXECUTE, hangs_for=12.0),
        task(2, stack=LOADER, hangs_for=12.0),
        task(3, stack=EXECUTE, hangs_for=12.0),
    ],
    2,
    Kind.STUCK,
)
case(
    "the only one that hangs waits for several threads of its own",
    [task(0, stack=THREADS, hangs_for=12.0), *others(0, lambda i: task(i))],
    None,
    None,
)
case(
    "the only one that is not ready is in its own code",
    [task(0, stack=TRAINS), task(1, stack=LOADER, hangs_for=100.0)],
    1,
    Kind.STUCK,
)
case(
    "the last one hangs at its end",
    [*(task(i, status=0, ended_at=9.0) for i in range(3)), task(3, stack=LOADER, hangs_for=50.0)],
    3,
    Kind.STUCK,
)
case(
    "the last one waits for the one that has left",
    [task(0, status=0, ended_at=9.0), task(1, stack=ALL_REDUCE, hangs_for=50.0)],
    0,
    Kind.LEFT_EARLY,
    False,
)
case("a single task is stopped", [task(0, stopped="is stopped", hangs_for=12.0)], 0, Kind.STOPPED)
case(
    "all wait in the kernel for a disk",
    [task(i, stopped="waits in the kernel (D): nfs_wait", hangs_for=12.0) for i in range(4)],
    (0, 1, 2, 3),
    Kind.STOPPED,
)
case(
    "a rank that has raised hangs in a thread that it waits for",
    [
        *others(2, lambda i: task(i, stack=ALL_REDUCE, hangs_for=12.0)),
        task(2, tail=BAD, stack=THREADS_END, hangs_for=12.0),
    ],
    2,
    Kind.RAISED,
)
case(
    "a rank that has raised hangs in what it has registered for its exit",
    [
        *others(2, lambda i: task(i, stack=ALL_REDUCE, hangs_for=12.0)),
        task(2, tail=BAD, stack=AT_EXIT, hangs_for=12.0),
    ],
    2,
    Kind.RAISED,
)
case(
    "a pool that is shut down in the midst of a program is no end",
    [
        *others(2, lambda i: task(i, stack=ALL_REDUCE, hangs_for=12.0)),
        task(2, tail=[*BAD, "skipped"], stack=POOL, hangs_for=12.0),
    ],
    2,
    Kind.STUCK,
    False,
)
# Nothing points to anybody.
case(
    "all hang in the same place",
    [task(i, stack=ALL_REDUCE, hangs_for=12.0) for i in range(4)],
    None,
)
case("a single task hangs", [task(0, stack=LOADER, hangs_for=12.0)], None)
case(
    "a ps and a worker that is missing among victims that name nobody",
    [
        task(0, name="ps", serves=True, by_us=True, signal="TERM"),
        *(victim(i, traceback("tensorflow.errors_impl.UnavailableError: x")) for i in range(3)),
    ],
    None,
)
case("all have ended well", [task(i, status=0, ended_at=9.0) for i in range(4)], None)
case("nothing is known", [task(i) for i in range(4)], None)
case("a person has ended the run", [ended(i) for i in range(4)], None)
case("all wait in the same place", [task(i, stack=ALL_REDUCE) for i in range(4)], None)
case(
    "all are somewhere else",
    [task(i, stack=(StackFrame(f"f{i}", f"/job/{i}.py", i),)) for i in range(4)],
    None,
)
case("victims that name each other", [victim(i, reset((i + 1) % 4)) for i in range(4)], None)
case(
    "on one machine an address is everybody's",
    [
        replace(
            victim(i, traceback("RuntimeError: Connection closed by peer [127.0.0.1]:30902")),
            names=("127.0.0.1",),
        )
        for i in range(4)
    ],
    None,
)
case(
    "the end of a run: three are through, the last one trains",
    [
        *(task(i, status=0, ended_at=9.0) for i in range(3)),
        task(3, stack=TRAINS),
    ],
    None,
)
case(
    "two train and two wait",
    [
        task(0, stack=TRAINS),
        task(1, stack=TRAINS),
        task(2, stack=ALL_REDUCE),
        task(3, stack=ALL_REDUCE),
    ],
    None,
)
case(
    "an interrupt is no exception of a program's own",
    [
        task(0, tail=traceback("KeyboardInterrupt"), signal="INT", by_us=True, ended_at=9.0),
        *others(0, ended),
    ],
    None,
)
case(
    "tracebacks of clean-ups that our signal has caused",
    [
        ended(
            0,
            tail=traceback("RuntimeError: cannot schedule new futures after shutdown"),
            status=1,
            signal=None,
        ),
        *others(0, ended),
    ],
    None,
)

case(
    "jax: a rank raises, and is aborted when its shutdown barrier fails",
    [
        task(
            2,
            tail=[
                *BAD,
                "E1127 14:39:44.427749    4927 coordination_service_agent.cc:289] Polled an error "
                "from coordination service (this can be an error from this or another task).",
                *jax_lost(0),
            ],
            stack=SHUTDOWN,
            signal="ABRT",
            ended_at=20.0,
        ),
        *others(2, ended),
    ],
    2,
    Kind.RAISED,
)
case(
    "an exception that is raised while a victim's is handled",
    [
        task(0, signal="KILL", ended_at=20.0),
        victim(
            1,
            [
                *closed(0),
                "[rank0]: ",
                "[rank0]: During handling of the above exception, another exception occurred:",
                "[rank0]: ",
                *traceback("TrainingFailed: step 4", prefix="[rank0]: "),
            ],
            19.0,
        ),
    ],
    0,
    Kind.KILLED,
)
case(
    "an exception with its message in several lines",
    [
        task(0, signal="KILL", ended_at=20.0),
        victim(
            1,
            [
                *traceback("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219"),
                "ncclRemoteError: A call failed possibly due to a network error",
            ],
            19.0,
        ),
    ],
    0,
    Kind.KILLED,
)
case(
    "all ranks raise the same, and most are ended before they have left",
    [
        task(0, tail=BAD, status=1, ended_at=20.0),
        ended(1, tail=BAD),
        ended(2, tail=BAD, status=1, signal=None),
        ended(3, tail=BAD),
    ],
    (0, 1, 2, 3),
    Kind.ALIKE,
)
case(
    "all workers raise the same, and their ps is ended with most of them",
    [
        task(0, name="ps", serves=True, status=0, by_us=True),
        task(0, tail=BAD, status=1, ended_at=20.0),
        ended(1, tail=BAD, status=1, signal=None),
        ended(2, tail=BAD, status=1, signal=None),
    ],
    (0, 1, 2),
    Kind.ALIKE,
)
case(
    "two servers crash, and the worker lives",
    [
        task(0, name="ps", serves=True, signal="SEGV", ended_at=20.0),
        task(1, name="ps", serves=True, signal="SEGV", ended_at=20.1),
        ended(0),
    ],
    0,
    Kind.KILLED,
    False,
)
case(
    "another rank has raised elsewhere before it was ended",
    [
        task(0, tail=BAD, status=1, ended_at=20.0),
        *(ended(index, tail=BAD) for index in (1, 2)),
        ended(3, tail=traceback("ValueError: bad sample in shard 17", "/job/other.py", 13)),
    ],
    0,
    Kind.RAISED,
    None,
)
case(
    "a rank that keeps the coordination service is killed",
    [
        task(
            0,
            tail=[
                "I0000 00:00:1795790733.743969     532 coordination_service.h:529] /job:worker/"
                "replica:0/task:1 has connected to coordination service. Incarnation: 1290281985"
            ],
            signal="KILL",
            ended_at=20.0,
        ),
        *others(0, lambda index: victim(index, tf_lost(0))),
    ],
    0,
    Kind.KILLED,
)
LOADER_WAITS = (
    StackFrame("wait", f"{LIBRARY}threading.py", 302),
    StackFrame("get", f"{LIBRARY}queue.py", 170),
    StackFrame("__next__", f"{SITE}fairseq/data/iterators.py", 648),
    StackFrame("train", "/job/train.py", 274),
    StackFrame("<module>", "/job/train.py", 300),
)
case(
    "a rank waits for its own loader, which never fills the queue",
    [task(0, stack=LOADER_WAITS), *others(0, lambda i: task(i, stack=ALL_REDUCE))],
    0,
    Kind.STUCK,
)
LATE = "[Rank 0]: {} failed to pass monitoredBarrier in 4000 ms"
REACHED = traceback(
    "RuntimeError: Rank {} successfully reached monitoredBarrier, but received errors while "
    "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
)
ORIGINAL = [
    " Original exception: ",
    "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation",
]


def reached(index: int) -> TaskEvidence:
    tail = [line.format(index) for line in REACHED]
    return victim(index, [*tail, *ORIGINAL], 20.5)


case(
    "rank 0 says who did not come to a monitored barrier",
    [
        victim(0, [*traceback(f"RuntimeError: {LATE.format('Rank 2')}"), *ORIGINAL]),
        reached(1),
        ended(2),
        reached(3),
    ],
    2,
    Kind.NAMED,
    False,
)
case(
    "two ranks did not come to a monitored barrier",
    [
        victim(0, traceback(f"RuntimeError: {LATE.format('Ranks 1, 3')}")),
        ended(1),
        reached(2),
        ended(3),
    ],
    (1, 3),
    Kind.NAMED,
    False,
)
case(
    "rank 0 itself did not come to a monitored barrier",
    [ended(0), reached(1), reached(2), reached(3)],
    0,
    Kind.NAMED,
    False,
)
case(
    "rank 0 waits in a monitored barrier for one that is in its loader",
    [
        task(0, stack=ALL_REDUCE, tail=traceback(f"RuntimeError: {LATE.format('Rank 2')}")),
        reached(1),
        ended(2, stack=LOADER),
        reached(3),
    ],
    2,
    Kind.STUCK,
)
for said in ("missing ranks: {2}", "error msg: Culprit rank 2; Error type: SIZE_OR_SYNTAX"):
    case(
        f"the flight recorder's analysis is in the log: {said[:20]}",
        [
            victim(0, [*watchdog(7), "Collective sequence number: 7 has errors", said]),
            *(victim(index, watchdog(7)) for index in (1, 3)),
            ended(2),
        ],
        2,
        Kind.STUCK,
    )
UNKNOWN = (StackFrame("python runs"),)
IN_KERNEL = "waits in the kernel (D): exit_mm"
case(
    "a victim that is ending stands in D for a moment",
    [
        task(0, tail=closed(3), stopped=IN_KERNEL, seen_twice=False),
        task(1, stack=ALL_REDUCE),
        task(2, stack=LOADER),
        victim(3, TIMED_OUT),
    ],
    2,
    Kind.STUCK,
)
case(
    "a victim that writes a core stands in D for long",
    [
        task(0, tail=closed(3), stopped="waits in the kernel (D): do_coredump"),
        task(1, stack=ALL_REDUCE),
        task(2, stack=LOADER),
        victim(3, TIMED_OUT),
    ],
    2,
    Kind.STUCK,
)
case(
    "a rank that reads is seen in D once, and nothing else is known",
    [task(1, stopped=IN_KERNEL, seen_twice=False), *others(1, lambda i: task(i, stack=UNKNOWN))],
    1,
    Kind.STOPPED,
    False,
)
case(
    "a rank is stopped in the only look",
    [
        task(1, stopped="is stopped", seen_twice=False),
        *others(1, lambda i: task(i, stack=ALL_REDUCE)),
    ],
    1,
    Kind.STOPPED,
    False,
)
case(
    "a stopped rank had missed a peer long ago",
    [
        task(1, stopped="is stopped", tail=[WAITING]),
        *others(1, lambda i: task(i, stack=ALL_REDUCE)),
    ],
    1,
    Kind.STOPPED,
)
case(
    "all ranks are in D for long",
    [task(i, stopped="waits in the kernel (D): nfs_wait_bit_killable") for i in range(4)],
    (0, 1, 2, 3),
    Kind.STOPPED,
)
case(
    "all ranks are in D in the only look",
    [task(i, stopped=IN_KERNEL, seen_twice=False) for i in range(4)],
    None,
)
case(
    "a rank is in its loader in the only look",
    [task(1, stack=LOADER, seen_twice=False), *others(1, lambda i: task(i, stack=ALL_REDUCE))],
    1,
    Kind.STUCK,
    False,
)
case(
    "a rank is at its end in the only look",
    [task(1, stack=SHUTDOWN, seen_twice=False), *others(1, lambda i: task(i, stack=ALLGATHER))],
    1,
    Kind.LEFT_EARLY,
    False,
)
case(
    "a rank that has raised is in a framework's shutdown in the only look",
    [
        *others(2, lambda i: task(i, stack=ALLGATHER)),
        task(2, tail=BAD, stack=SHUTDOWN, seen_twice=False),
    ],
    2,
    Kind.RAISED,
    False,
)
case(
    "three time out, and one was in its loader in the only look",
    [
        *others(1, lambda i: victim(i, TIMED_OUT)),
        task(1, stack=LOADER, seen_twice=False, signal="KILL", by_us=True),
    ],
    1,
    Kind.STUCK,
    False,
)
case(
    "ranks whose places are not known are not where the others wait",
    [
        task(0, stack=ALL_REDUCE),
        *(task(index, stack=UNKNOWN) for index in (1, 2, 3)),
    ],
    None,
)


def on_rank(rank: int, lines: list[str]) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in lines]


def torchrun(
    rank: int, code: int, said: list[str], ended: int | None = None, told: bool = True
) -> list[str]:
    """A host's torchrun, after what its ranks have said. `ended`: a rank that it has ended by TERM
    and lists; `told`: it has ended one."""
    ending = (
        "W0325 20:57:27.31 2606 torch/distributed/elastic/multiprocessing/api.py:900] Sending "
        "process 33051 closing signal SIGTERM"
    )
    more = [
        "[1]:",
        f"  rank      : {ended} (local_rank: {(ended or 0) % 2})",
        "  exitcode  : -15 (pid: 33051)",
    ]
    how = f"Signal {-code} received by PID 14750" if code < 0 else "To enable traceback see: https"
    file = f"{SITE}torch/distributed/launcher/api.py"
    return [
        *said,
        *([ending] if told else ()),
        "E0325 20:57:27.62 2606 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        f"(exitcode: {code}) local_rank: {rank % 2} (pid: 14750) of binary: /usr/bin/python3",
        *traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", file),
        "=" * 60,
        "train.py FAILED",
        "Failures:",
        *(["  <NO_OTHER_FAILURES>"] if ended is None else more),
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2025-05-21_15:43:03",
        f"  rank      : {rank} (local_rank: {rank % 2})",
        f"  exitcode  : {code} (pid: 14750)",
        "  error_file: <N/A>",
        f"  traceback : {how}",
        "=" * 60,
    ]


def deepspeed(code: int, said: list[str]) -> list[str]:
    return [
        *said,
        "[2024-03-20 20:31:29,210] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 3353",
        "[2024-03-20 20:31:29,269] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', "
        f"'-u', 'main.py', '--local_rank=1'] exits with return code = {code}",
    ]


def accelerate(said: list[str]) -> list[str]:
    text = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit"
    return [*said, *traceback(f"{text} status 1.", f"{SITE}accelerate/commands/launch.py")]


BAD_ON_RANK = on_rank(2, BAD)
case(
    "torchrun a host: the kernel kills a rank, and the other hosts' ranks are victims",
    [
        victim(1, torchrun(2, -9, ["step 3 loss 0.2"]), at=20.2),
        *others(1, lambda i: victim(i, torchrun(2 * i, 1, on_rank(2 * i, reset(1))))),
    ],
    1,
    Kind.KILLED,
)
case(
    "torchrun a host: a killed rank's neighbour on its host is a victim, too",
    [
        victim(1, torchrun(2, -9, on_rank(3, reset(1)))),
        *others(1, lambda i: victim(i, torchrun(2 * i, 1, on_rank(2 * i, reset(1))))),
    ],
    1,
    Kind.KILLED,
)
case(
    "torchrun a host: a rank raises, and its neighbour misses it after that",
    [
        victim(1, torchrun(2, 1, [*BAD_ON_RANK, *on_rank(3, reset(1))]), at=20.2),
        *others(1, lambda i: victim(i, torchrun(2 * i, 1, on_rank(2 * i, reset(1))))),
    ],
    1,
    Kind.RAISED,
)
case(
    "torchrun a host: NCCL's watchdog ends all ranks alike, and nothing points to one",
    [victim(i, torchrun(2 * i, -6, watchdog(100)), at=20.0 + i) for i in range(4)],
    None,
)
case(
    "torchrun a host: a rank fails without a word",
    [victim(1, torchrun(2, 3, [])), *others(1, lambda i: ended(i))],
    1,
    Kind.FAILED,
)
LEFT = {
    "says how many ranks it starts": {"started": 2},
    "leaves it to the environment": {},
}
for how, known in LEFT.items():
    case(
        f"torchrun, which {how}: a rank leaves with 0, and all others miss it",
        [
            victim(0, torchrun(1, 1, on_rank(1, reset(1)), ended=0)),
            victim(1, torchrun(3, 1, on_rank(3, reset(1)), told=False), **known),
        ],
        1,
        Kind.LEFT_EARLY,
        bool(known),
    )
case(
    "torchrun: the highest rank of a host leaves with 0",
    [
        victim(0, torchrun(1, 1, on_rank(1, reset(1)), ended=0), started=2),
        victim(1, torchrun(2, 1, on_rank(2, reset(1)), told=False), started=2),
    ],
    1,
    Kind.LEFT_EARLY,
)
case(
    "torchrun: ranks that were ended left with 0, as programs do that catch TERM",
    [victim(i, torchrun(2 * i, 1, on_rank(2 * i, reset(1))), started=2) for i in range(4)],
    None,
)
case(
    "torchrun: ranks of two hosts have left with 0",
    [victim(i, torchrun(2 * i, 1, on_rank(2 * i, reset(1)), told=False)) for i in range(2)],
    None,
)


def begun(rank: int, number: int, group: int = 0) -> str:
    return (
        f"[rank{rank}]:[E1122 06:40:00 ProcessGroupNCCL.cpp:1785] [PG ID {group} PG GUID {group} "
        f"Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: "
        f"{number - 3}, last enqueued NCCL work: {number}, last completed NCCL work: {number - 4}."
    )


def timed_out(rank: int, number: int) -> list[str]:
    return [watchdog(number - 3)[0], begun(rank, number)]


MERGED = [line for rank in range(4) for line in timed_out(rank, 805 if rank == 2 else 811)]
ALIKE = [line for rank in range(4) for line in timed_out(rank, 811)] + [begun(2, 7, 3)]
case(
    "NCCL below torchrun: one rank has begun fewer operations, in a log of all",
    [task(0, status=1, ended_at=20.0, tail=torchrun(0, -6, MERGED))],
    0,
    Kind.STUCK,
)
case(
    "NCCL below torchrun: all ranks are in the same operation, one group has fewer",
    [task(0, status=1, ended_at=20.0, tail=torchrun(0, -6, ALIKE))],
    None,
)


def part(index: int, local: int, *, told: bool = True) -> TaskRank:
    """A rank of a task that has started two; where its number is not told, it is a guess."""
    number = 2 * index + local if told else local
    return TaskRank(TaskId("worker", index), number, 100 * index + local, told)


def below(index: int, *stacks: tuple[StackFrame, ...], **known: Any) -> TaskEvidence:
    """A torchrun, and its ranks where they are."""
    ranks = [task(index, part=part(index, n), stack=stack) for n, stack in enumerate(stacks)]
    return task(index, stack=stacks[0], ranks=tuple(ranks), hangs_for=12.0, **known)


def spawned(*stacks: tuple[StackFrame, ...]) -> TaskEvidence:
    """A task that has started processes as `mp.spawn` does."""
    found = [
        task(0, part=part(0, n, told=False), stack=stack, seen_twice=True)
        for n, stack in enumerate(stacks)
    ]
    return task(0, stack=stacks[0], ranks=tuple(found), hangs_for=12.0, seen_twice=True)


QUEUE = (
    StackFrame("recv_bytes", "/usr/lib/python3.12/multiprocessing/connection.py", 216),
    StackFrame("get", "/usr/lib/python3.12/multiprocessing/queues.py", 103),
    StackFrame("act", "/srv/train.py", 20),
)

case(
    "torchrun: a rank is in its loader, all others of all hosts wait for it",
    [below(0, ALL_REDUCE, ALL_REDUCE), below(1, ALL_REDUCE, LOADER)],
    1,
    Kind.STUCK,
)
case(
    "torchrun: a rank is stopped",
    [
        below(0, ALL_REDUCE, ALL_REDUCE),
        replace(
            below(1, ALL_REDUCE, ()),
            ranks=(
                task(1, part=part(1, 0), stack=ALL_REDUCE),
                task(1, part=part(1, 1), stopped="is stopped"),
            ),
        ),
    ],
    1,
    Kind.STOPPED,
)
case(
    "mp.spawn: a rank is in its loader, and all others wait in a framework",
    [spawned(ALL_REDUCE, ALL_REDUCE, LOADER, ALL_REDUCE)],
    0,
    Kind.STUCK,
)
SPAWNED = "-- Process 2 terminated with the following error:"
RAISED_ABOVE = [
    "Traceback (most recent call last):",
    '  File "/srv/train.py", line 22, in <module>',
    "    mp.spawn(work, args=(4,), nprocs=4)",
    '  File "/x/site-packages/torch/multiprocessing/spawn.py", line 340, in spawn',
    "    return start_processes(fn, args, nprocs, join, daemon)",
]
case(
    "mp.spawn: a rank raises, and all are ended",
    [
        victim(
            0,
            [
                *RAISED_ABOVE,
                "torch.multiprocessing.spawn.ProcessRaisedException: ",
                "",
                SPAWNED,
                *BAD,
            ],
        )
    ],
    0,
    Kind.RAISED,
)
case(
    "mp.spawn: a rank is killed, and all are ended",
    [
        victim(
            0,
            [
                *RAISED_ABOVE,
                "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with "
                "signal SIGKILL",
            ],
        )
    ],
    0,
    Kind.KILLED,
)
case(
    "mp.spawn: the first end that it sees is a victim's",
    [
        victim(
            0,
            [
                *RAISED_ABOVE,
                "torch.multiprocessing.spawn.ProcessRaisedException: ",
                "",
                SPAWNED,
                *traceback("RuntimeError: Connection closed by peer [127.0.0.1]:24985"),
            ],
        )
    ],
    None,
)
case(
    "multiprocessing: a rank has raised, and its parent joins the others, which wait",
    [
        replace(
            spawned(ALL_REDUCE, ALL_REDUCE, ALL_REDUCE),
            tail=("Process SpawnProcess-3:", *BAD),
        )
    ],
    0,
    Kind.RAISED,
)
case(
    "multiprocessing: a rank has raised, and its victims have raised after it",
    [
        task(
            0,
            hangs_for=12.0,
            seen_twice=True,
            tail=[
                "Process Process-3:",
                *BAD,
                "Process Process-1:",
                *traceback("RuntimeError: Connection closed by peer [127.0.0.1]:24985"),
            ],
        )
    ],
    0,
    Kind.RAISED,
    sure=False,
)
case(
    "multiprocessing: a process has raised, and the run goes on",
    [task(0, moves=True, tail=["Process Process-3:", *BAD])],
    None,
)
case(
    "processes of which nobody knows whether they are ranks: all but one wait for work",
    [spawned(QUEUE, QUEUE, LOADER, QUEUE)],
    0,
    Kind.STUCK,
    sure=False,
)
case(
    "torchrun: half of the ranks are elsewhere",
    [below(0, ALL_REDUCE, LOADER), below(1, ALL_REDUCE, LOADER)],
    None,
)
case(
    "torchrun of a host is ended by us, and says so",
    [
        victim(1, torchrun(2, 1, BAD_ON_RANK)),
        *others(1, lambda i: ended(i, tail=traceback("x.api.SignalException: Process got 15"))),
    ],
    1,
    Kind.RAISED,
)
case(
    "deepspeed: a killed process, and victims that ended before its launcher",
    [
        task(0, tail=deepspeed(-9, ["step 3"]), status=247, ended_at=20.5),
        *others(0, lambda i: victim(i, deepspeed(1, reset(0)))),
    ],
    0,
    Kind.KILLED,
)
case(
    "accelerate: a process raises, and the others' miss it",
    [
        victim(1, accelerate(BAD), at=20.5),
        *others(1, lambda i: victim(i, accelerate(reset(1)))),
    ],
    1,
    Kind.RAISED,
)
case(
    "a command that fails is an exception of the task's own",
    [victim(1, accelerate(["downloading"])), *others(1, lambda i: victim(i, reset(1)))],
    1,
    Kind.RAISED,
)
MPI_KILLED = (
    "mpirun noticed that process rank 2 with PID 4242 on node tf2 exited on signal 9 (Killed)."
)
MPI_FAILED = ["Primary job  terminated normally, but 1 process returned", "a non-zero exit code."]
MPI_FAILED += ["  Process name: [[14529,1],2]", "  Exit code:    3"]
case(
    "mpirun: a rank is killed",
    [task(0, tail=["step 3", "-" * 60, MPI_KILLED, "-" * 60], status=137, ended_at=20.0)],
    0,
    Kind.KILLED,
)
case(
    "mpirun: a rank raises, and another one misses it",
    [task(0, tail=[*BAD, *reset(1), *MPI_FAILED], status=1, ended_at=20.0)],
    0,
    Kind.RAISED,
)
case(
    "mpirun: a rank fails without a word",
    [task(0, tail=MPI_FAILED, status=3, ended_at=20.0)],
    0,
    Kind.FAILED,
)
REFUSED = (
    'I0320 05:57:29 3803 subchannel.cc:677] Connect failed: {"description":"Failed to connect to '
    'remote host: OS Error","os_error":"Connection refused","target_address":"ipv4:10.0.0.3:144"}'
)
case(
    "sessions wait for a worker that does not listen",
    [task(2, tail=["loading"]), *others(2, lambda i: task(i, tail=[REFUSED], hangs_for=60.0))],
    2,
    Kind.NAMED,
    False,
)
STALLS = (
    "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset "
    "of ranks and are waiting for remainder of ranks for more than 60 seconds."
)
SHUT_DOWN = (
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt "
    "to allreduce, allgather or broadcast a tensor after one of the ranks finished execution."
)
case(
    "Horovod's coordinator misses a rank",
    [
        task(0, tail=[STALLS, "Stalled ops:", "a [missing ranks: 1]", "b [missing ranks: 1]"]),
        *others(0, task),
    ],
    1,
    Kind.STUCK,
)
case(
    "Horovod's stall inspector misses a rank",
    [task(0, tail=[STALLS, "Missing ranks:", "1: [Allreduce/cond_163, AddN]"]), *others(0, task)],
    1,
    Kind.STUCK,
)
case(
    "labels of lines are no ranks that are missed",
    [task(0, tail=["0: [main] loads", "1: [main] loads"]), *others(0, task)],
    None,
)
case(
    "Horovod: two ranks miss each other",
    [
        task(0, tail=[STALLS, "Missing ranks:", "1: [Allreduce/a]", "3: [Allreduce/b]"]),
        *others(0, task),
    ],
    None,
)
case(
    "Horovod shuts down, and the rank that raised ends last",
    [
        victim(2, BAD, at=20.4),
        *others(2, lambda i: victim(i, traceback(f"HorovodInternalError: {SHUT_DOWN}"))),
    ],
    2,
    Kind.RAISED,
)
case(
    "Horovod shuts down because a rank is through",
    [
        task(2, tail=["done"], status=0, ended_at=18.0),
        *others(2, lambda i: victim(i, traceback(f"errors_impl.UnknownError: {SHUT_DOWN}"))),
    ],
    2,
    Kind.LEFT_EARLY,
)
BARRIER = [
    *traceback(
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: "
        "PjRT_Client_Connect. Timed out task names:"
    ),
    "/job:jax_worker/replica:0/task:2",
]
case(
    "JAX's barrier names who has not come",
    [task(2, tail=["loading"]), *others(2, lambda i: victim(i, BARRIER))],
    2,
    Kind.NAMED,
    False,
)
STUCK_WATCHDOG = (
    "[rank2]:[E626 05:14:36 ProcessGroupNCCL.cpp:1743] [PG ID 0 Rank 2] ProcessGroupNCCL's "
    "watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
)
case(
    "NCCL's monitor ends all ranks, which says nothing of the cause",
    [task(i, tail=[STUCK_WATCHDOG], signal="ABRT", ended_at=20.0 + i) for i in range(4)],
    None,
)
RETRIES = (
    'RPC failed with status = "Unavailable: Socket closed" and grpc_error_string = '
    '"{"created":"@1609","description":"Error received from peer ipv4:10.0.0.10:2222","file"'
)
case(
    "workers retry calls to a ps that is gone",
    [
        task(9, name="ps", serves=True),
        *(task(index, tail=[RETRIES], hangs_for=60.0) for index in (0, 1)),
    ],
    9,
    Kind.NAMED,
    False,
)
NCCL_PEER = (
    "torch.distributed.DistBackendError: NCCL error: ncclRemoteError: a remote process exited. "
    "Last error: socketProgress: Connection closed by remote peer 10.0.0.3<37022>"
)
case(
    "NCCL names the peer that has closed its connection",
    [task(2), *others(2, lambda i: victim(i, traceback(NCCL_PEER)))],
    2,
    Kind.NAMED,
    False,
)
STORE = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while "
    "trying to connect to (10.0.0.1, 29500)."
)
case(
    "the rank that serves the store has not begun",
    [task(0, tail=["loading"]), *others(0, lambda i: victim(i, traceback(STORE)))],
    0,
    Kind.NAMED,
    False,
)


@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str) -> None:
    """Who is named, and whether for sure; nobody where nothing points to one."""
    facts, guilty, kind, sure = CASES[name]
    verdict = judge(facts)
    if kind is None:
        assert verdict is None, verdict
        return
    assert verdict is not None and verdict.kind is kind, verdict
    assert sure is None or verdict.sure is sure, verdict
    assert verdict.sure or verdict.text.startswith("probably "), verdict
    if guilty is not None:
        assert [one.index for one in verdict.tasks] == list(guilty), verdict
    else:
        assert [str(one) for one in verdict.tasks] == ["ps:0"]


def test_there_are_many_cases() -> None:
    """Sixty at least, a fifth of which name nobody or only probably."""
    assert len(CASES) >= 60
    assert sum(kind is None or not sure for *_, kind, sure in CASES.values()) >= 15


def test_the_sentence_of_a_launcher_names_its_rank() -> None:
    """Given a task that has started several ranks, then the sentence says which, and its end."""
    said = {name: judge(CASES[name][0]) for name in CASES if name.startswith("mpirun")}
    killed, raised, failed = (verdict.text if verdict else "" for verdict in said.values())
    assert killed.startswith("worker:0 on tf1 lost rank 2, which was killed by SIGKILL")
    assert raised == "worker:0 on tf1 raised ValueError: bad sample in shard 17 (data.py:13)"
    assert failed == "worker:0 on tf1 lost rank 2, which ended with exit code 3"


def test_the_sentence_of_a_hang_names_the_rank_below_a_launcher() -> None:
    """Its number is that of the whole run, and all ranks count that wait."""
    texts = {name: v.text for name in CASES if (v := judge(CASES[name][0]))}
    assert texts["torchrun: a rank is in its loader, all others of all hosts wait for it"] == (
        "rank 3 of worker:1 on tf2 is in next_batch data.py:12; 3 others wait in all_reduce "
        "(train.py:20)"
    )
    assert texts["torchrun: a rank is stopped"].startswith("rank 3 of worker:1 on tf2 is stopped")
    assert texts["mp.spawn: a rank is in its loader, and all others wait in a framework"] == (
        "process 2 (probably local rank 2) of worker:0 on tf1 is in next_batch data.py:12; 3 "
        "others wait in all_reduce (train.py:20)"
    )
    named = "process 2 (probably local rank 2)"
    bad = "raised ValueError: bad sample in shard 17 (data.py:13)"
    assert texts["mp.spawn: a rank raises, and all are ended"] == (
        f"{named} of worker:0 on tf1 {bad}"
    )
    assert texts["mp.spawn: a rank is killed, and all are ended"].startswith(
        f"worker:0 on tf1 lost {named}, which was killed by SIGKILL"
    )
    assert texts[
        "multiprocessing: a rank has raised, and its parent joins the others, which wait"
    ] == (f"SpawnProcess-3 of worker:0 on tf1 {bad}; 3 others wait in all_reduce (train.py:20)")
    left = "of worker:1 on tf2 left with exit code 0; 1 other waited for it"
    assert texts["torchrun: the highest rank of a host leaves with 0"] == f"rank 3 {left}"


def test_the_sentence_says_who_where_why_and_who_waits() -> None:
    """As it stands in the header."""
    stuck = judge(CASES["rank 3 is in its loader, and all others wait"][0])
    stopped = judge(CASES["rank 3 is stopped, and all others wait in a collective"][0])
    raised = judge(CASES["torch: rank 2 raises"][0])
    assert stuck is not None and raised is not None and stopped is not None
    assert stopped.text == "worker:3 on tf4 is stopped; 3 others wait in all_reduce (train.py:20)"
    assert stuck.text == (
        "worker:3 on tf4 is in next_batch data.py:12; 3 others wait in <module> train.py:29"
    )
    assert raised.text == "worker:2 on tf3 raised ValueError: bad sample in shard 17 (data.py:13)"
    raised_itself, missed, *_ = raised.evidence
    said = Evidence(TaskId("worker", 2), "ValueError: bad sample in shard 17", in_log=True)
    assert raised_itself == said
    assert missed.task == TaskId("worker", 0) and missed.in_log
    assert "Read error [10.0.0.3]" in missed.text
    assert stuck.evidence[0] == Evidence(TaskId("worker", 3), "in next_batch data.py:12")


@pytest.mark.parametrize(
    ("case", "where"),
    [
        ("rank 3 is in its loader, and all others wait", "waits in <module> train.py:29"),
        (
            "rank 3 is stopped, and all others wait in a collective",
            "waits in all_reduce (train.py:20)",
        ),
    ],
)
def test_the_evidence_of_a_hang_names_who_waits_and_where(case: str, where: str) -> None:
    """Given a run that hangs, then the guilty task comes first, and then each task that waits for
    it, with the place in which it waits; none of them is in a log."""
    verdict = judge(CASES[case][0])
    assert verdict is not None
    first, *others = verdict.evidence
    assert first.task == TaskId("worker", 3)
    assert others == [Evidence(TaskId("worker", number), where) for number in range(3)]


def test_many_that_wait_are_bounded() -> None:
    """Given a thousand tasks of which one is elsewhere, then so many are named that the page and
    the record stay small."""
    (*_, stuck), waiting = CASES["rank 3 is in its loader, and all others wait"][0], 1000
    one = CASES["rank 3 is in its loader, and all others wait"][0][0]
    crowd = [replace(one, task=TaskId("worker", 10 + number)) for number in range(waiting)]
    verdict = judge([*crowd, stuck])
    assert verdict is not None and verdict.tasks == (TaskId("worker", 3),)
    assert 10 < len(verdict.evidence) <= 65


@pytest.mark.parametrize(
    "tail", [reset(1), closed(1), TIMED_OUT, jax_lost(1), tf_lost(1), watchdog(3)]
)
def test_a_victim_says_so(tail: list[str]) -> None:
    """Before a run is ended for such a failure, the others are looked at."""
    assert misses_a_peer(tail) and not misses_a_peer(BAD) and not misses_a_peer(["step 3 loss 0.5"])


def test_many_victims_that_all_name_each_other_lead_to_the_one_that_says_nothing() -> None:
    """From each to whom it names, and further on: no way is gone twice."""
    count = 120
    silent = task(count - 1, signal="KILL", by_us=True, ended_at=30.0)
    facts = [victim(index, []) for index in range(count - 1)]
    words = victim(0, closed(0)).words
    for index, one in enumerate(facts):
        peers = tuple(f"10.0.0.{(index + step) % count + 1}" for step in range(1, 31))
        vars(one)["words"] = replace(words, peers=peers)
    verdict = judge([*facts, silent])
    assert verdict is not None and verdict.tasks == (silent.task,)


def test_an_address_of_several_tasks_names_none_of_them() -> None:
    same = ("10.0.0.9",)
    first, second = (task(index, names=same, hangs_for=9.0) for index in (2, 3))
    assert judge([victim(0, closed(8)), victim(1, closed(8)), first, second]) is None


def test_hostile_lines_cost_little_and_name_nobody_outside() -> None:
    """Ten thousand lines of four kilobytes, ranks and tasks that do not exist."""
    noise = [
        "[" * 4000,
        "Traceback (most recent call last):" * 100,
        "Task 999999 heartbeat timeout",
    ] * 3000
    listed = ["tasks are unhealthy (stopped sending heartbeats):", *(str(n) for n in range(5000))]
    nested = torchrun(2, -6, [TIMED_OUT[0], TIMED_OUT[-1]] * 90)
    facts = [victim(i, tail, signal=None) for i, tail in enumerate(([*noise, *listed], nested))]
    verdict = judge([*facts, task(3, tail=["\ud800" * 500, "\x00" * 500])])
    assert verdict is None or all(one.index < 4 for one in verdict.tasks)
    assert verdict is None or len(verdict.text) <= 300


OUT = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB"
HELD = "GPU 0 is held by alice's pid 455 (python3 sweep.py), 120 GiB"


@pytest.mark.parametrize(
    "error",
    [
        f"torch.OutOfMemoryError: {OUT}",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 8589934592 bytes.",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA driver error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "InternalError: CUDA runtime implicit initialization failed. Status: out of memory",
        "tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized.",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: failed to allocate memory",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869 bytes.",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to allocate 4 bytes for new "
        "constant",
    ],
)
def test_a_full_gpu_names_who_holds_it(error: str) -> None:
    """A task that finds no memory on its GPU is told who has it, whatever its framework says."""
    facts = [task(0, tail=traceback(error), status=1, gpu_holders=HELD), *map(ended, (1, 2, 3))]
    verdict = judge(facts)
    assert verdict is not None and verdict.kind is Kind.RAISED
    assert verdict.text.endswith(HELD) and "(train.py:20)" in verdict.text
    assert Evidence(TaskId("worker", 0), HELD) in verdict.evidence


OOM_OF_HOST = "OOM when allocating tensor with shape[9] on /job:worker/task:0/device:CPU:0"


@pytest.mark.parametrize(
    "tail",
    [
        BAD,
        traceback(f"tensorflow.python.framework.errors_impl.ResourceExhaustedError: {OOM_OF_HOST}"),
        traceback("grpc.RpcError: RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)"),
        traceback("numpy.exceptions.MemoryError: Unable to allocate 8.00 GiB for an array"),
    ],
    ids=["value", "memory of the host", "size of a message", "an array"],
)
def test_who_holds_a_gpu_is_no_matter_of_other_exceptions(tail: list[str]) -> None:
    """Given an exception that says nothing of a GPU's memory, then the holders are not named."""
    verdict = judge([task(0, tail=tail, status=1, gpu_holders=HELD), *map(ended, (1, 2, 3))])
    assert verdict is not None and "alice" not in verdict.text


@pytest.mark.parametrize(
    "said",
    [
        "I0000 grpc_server_lib.cc:482] Started server with target: grpc://localhost:17331",
        "E0000 add_port.cc:83] Failed to add port to server: No address added out of total 1 "
        "resolved for '0.0.0.0:17331'",
    ],
)
def test_two_tasks_that_are_the_same_task(said: str) -> None:
    """Given a server that asks for the port of another task, on one host or on several, then the
    sentence says as whom it runs; a server on its own port is none."""
    lines = [said, *traceback("errors_impl.UnknownError: Could not start gRPC server")]
    first = task(0, names=("tf1:17331",), tail=[said], signal="TERM", by_us=True)
    for host in ("tf1", "tf2"):
        other = task(1, host=host, names=(f"{host}:17332",), tail=lines, status=1)
        verdict = judge([first, other])
        assert verdict is not None and not verdict.sure
        assert f"worker:1 on {host} runs as worker:0" in verdict.text
        own = judge([first, replace(other, names=(f"{host}:17331",))])
        assert own is not None and "runs as" not in own.text
