"""An error that another task has answered with is the caller's exception; the status code decides.

`tensorflow_errors.txt` has what a worker of TensorFlow 2.21 prints whose ps, on another host,
cannot do what it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.run.cause import Kind
from launcher.run.grpc_status import CODES
from launcher.run.last_words import misses_a_peer
from launcher.run.verdict import TaskEvidence, judge
from launcher.store.logs import tail_lines
from tests.support import paths

FILE = paths.REPOSITORY / "tests/support/tensorflow_errors.txt"
RAISED = {
    "assertion": "InvalidArgumentError: assertion failed: [batch has no] [0], on ps:0",
    "closed queue": "OutOfRangeError: FIFOQueue '_0_fifo_queue' is closed and has insufficient "
    "elements (requested 1, current size 0), on ps:0",
    "missing file": "NotFoundError: /nowhere/data.bin; No such file or directory, on ps:0",
    "missing records": "NotFoundError: /nowhere/train.tfrecords; No such file or directory, "
    "on ps:0",
    "nan": "InvalidArgumentError: quotient is not finite : Tensor had Inf values, on ps:0",
    "no checkpoint": "NotFoundError: Unsuccessful TensorSliceReader constructor: Failed to find "
    "any matching files for /tmp/cut.ckpt, on ps:0",
    "no directory": "FailedPreconditionError: /proc/version/x; Not a directory, on ps:0",
    "no value": "FailedPreconditionError: Attempting to use uninitialized value never, on ps:0",
    "out of memory": "ResourceExhaustedError: OOM when allocating tensor with shape"
    "[1048576,1048576,64] and type float on /job:ps/replica:0/task:0/device:CPU:0",
    "python function": "InvalidArgumentError: ValueError: Could not find callback with "
    "key=pyfunc_0 in the registry., on ps:0",
    "wrong index": "InvalidArgumentError: indices[1] = 12 is not in [0, 10), on ps:0",
    "wrong shape": "InvalidArgumentError: Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3], "
    "on ps:0",
}
"""What the worker has raised, by the name of its lines."""


def logs(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Each log's last lines as they are judged: they have no tabs and no empty lines any more."""
    for part in file.read_bytes().split(b"== ")[1:]:
        name, _, text = part.partition(b"\n")
        yield name.decode(), [*tail_lines(text, 120)]


LOGS = dict(logs(FILE))


def worker(tail: list[str], index: int = 0, status: int | None = 1) -> TaskEvidence:
    return TaskEvidence(
        TaskId("worker", index),
        f"tf{index + 2}",
        names=(f"10.0.0.{index + 2}:2222",),
        status=status,
        ended_at=20.0 + index,
        tail=tuple(tail),
    )


def ps(tail: list[str] | None = None) -> TaskEvidence:
    """The ps, which serves until it is ended."""
    return TaskEvidence(
        TaskId("ps", 0),
        "tf1",
        names=("10.0.0.1:2222",),
        signal="TERM",
        by_us=True,
        ended_at=22.0,
        tail=tuple(tail or ()),
        serves=True,
    )


@pytest.mark.parametrize("name", RAISED)
def test_an_answer_is_the_callers_exception(name: str) -> None:
    """The sentence is the other task's, and says where it was raised; the ps is not accused."""
    verdict = judge([ps(), worker(LOGS[name])])
    assert verdict is not None and verdict.kind is Kind.RAISED and verdict.sure
    assert verdict.text.startswith(f"worker:0 on tf2 raised {RAISED[name]}"), verdict.text
    assert "(fault.py:65)" in verdict.text
    (evidence,) = verdict.evidence
    assert any(evidence.text in line for line in LOGS[name])
    assert not misses_a_peer(LOGS[name])


def test_each_of_the_recorded_logs_is_expected() -> None:
    """All are answers but those of a ps that was lost, and of a time limit."""
    assert {*LOGS} == {*RAISED, "lost ps", "timeout"}


def test_a_traceback_that_a_ps_prints_is_no_end_of_its_own() -> None:
    """A ps that runs a Python function for its client prints what that raises, and serves on."""
    verdict = judge([ps(LOGS["python function"]), worker(LOGS["python function"])])
    assert verdict is not None and verdict.tasks == (TaskId("worker", 0),)


def test_a_traceback_of_another_task_whose_beginning_is_cut_off() -> None:
    """Only the last lines of a log are read."""
    lines = LOGS["python function"]
    begin = max(n for n, line in enumerate(lines) if line.endswith("Graph execution error:"))
    verdict = judge([ps(), worker(lines[begin:])])
    assert verdict is not None and RAISED["python function"] in verdict.text


def test_a_ps_that_is_gone_is_the_peer() -> None:
    """Code 14 is a lost peer's, which the target of the call names."""
    verdict = judge([ps(), worker(LOGS["lost ps"]), worker(LOGS["lost ps"], 1)])
    assert verdict is not None and verdict.kind is Kind.NAMED and not verdict.sure
    assert verdict.tasks == (TaskId("ps", 0),)
    assert misses_a_peer(LOGS["lost ps"])


FORMS = {
    "today": ':UNKNOWN:Error received from peer  {grpc_message:"it\'s so", grpc_status:%d}',
    "2.4": ':{"created":"@1609.1","description":"Error received from peer ipv4:10.0.0.1:2222",'
    '"file":"external/com_github_grpc_grpc/src/core/lib/surface/call.cc","file_line":1056,'
    '"grpc_message":"it\'s so","grpc_status":%d}',
}
ANSWERS = (3, 5, 6, 7, 8, 9, 11, 12, 15, 16)
UNCLEAR = (1, 2, 4, 10, 13)
NAMES = {number: name for name, number in CODES.items()}


def raised(code: int, form: str, message: str = "it's so") -> list[str]:
    kind = "".join(word.capitalize() for word in NAMES[code].split("_"))
    return [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 20, in <module>',
        "    session.run(train_op)",
        f"tensorflow.python.framework.errors_impl.{kind}Error: Graph execution error:",
        "",
        "From /job:worker/replica:0/task:0:",
        message,
        "\t [[{{node SaveV2}}]]",
        "Additional GRPC error information from remote target /job:ps/replica:0/task:0 while "
        "calling /tensorflow.WorkerService/RecvTensor:",
        FORMS[form] % code,
        "\t [[SaveV2_S1]]",
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", [*ANSWERS, *UNCLEAR, 14])
def test_the_code_decides(code: int, form: str) -> None:
    """Whatever the words are: an answer is the caller's for sure, what gRPC itself also says only
    probably, and only `UNAVAILABLE` is a lost peer."""
    for message in ("it's so", "Socket is not what this is about"):
        verdict = judge([ps(), worker(raised(code, form, message)), worker(["step 9"], 1, None)])
        assert verdict is not None
        if code == 14:
            assert verdict.tasks == (TaskId("ps", 0),) and verdict.kind is Kind.NAMED
            continue
        assert verdict.tasks == (TaskId("worker", 0),) and verdict.kind is Kind.RAISED
        assert verdict.sure is (code in ANSWERS)
        assert f"Error: {message}, on ps:0 (train.py:20)" in verdict.text
        assert misses_a_peer(raised(code, form, message)) is (code not in ANSWERS)


RESTARTED = (
    "RecvTensor expects a different device incarnation: 12 vs. 34. Your worker job "
    '("/job:ps/replica:0/task:0") was probably restarted. Check your worker job for the reason why '
    "it was restarted."
)


def test_a_ps_that_was_started_again_is_the_peer() -> None:
    """Code 10 is a lost peer's where it says that this one has begun anew."""
    verdict = judge([ps(), worker(raised(10, "today", RESTARTED))])
    assert verdict is not None and verdict.tasks == (TaskId("ps", 0),)


def test_an_error_of_the_task_itself_has_no_other_place() -> None:
    """`INTERNAL` that the worker's own part of the step has raised is no answer of another one."""
    tail = [line for line in raised(13, "today", "CUDA error") if "GRPC" not in line]
    verdict = judge([ps(), worker([line for line in tail if "grpc" not in line])])
    assert verdict is not None and verdict.sure
    assert verdict.text == "worker:0 on tf2 raised InternalError: CUDA error (train.py:20)"


def test_lines_of_an_earlier_log_are_no_evidence() -> None:
    """TensorFlow repeats behind a message what it has logged before, such as a ps that was not
    there yet."""
    earlier = [
        "Recent warning and error logs:",
        "  W0000 00:00:1795 12 rpc.cc:9] UNAVAILABLE: failed to connect to all addresses; last "
        "error: UNKNOWN: ipv4:10.0.0.1:2222: Failed to connect to remote host: Connection refused",
    ]
    verdict = judge([ps(), worker([*raised(3, "today"), *earlier])])
    assert verdict is not None and verdict.tasks == (TaskId("worker", 0),) and verdict.sure


PYTHON = """Traceback (most recent call last):
  File "/job/client.py", line 31, in <module>
    stub.Push(request)
  File "/venv/lib/python3.11/site-packages/grpc/_channel.py", line 1006, in _end_unary_response
    raise _InactiveRpcError(state)
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.{name}
\tdetails = "shard 7 is not mine"
\tdebug_error_string = "UNKNOWN:Error received from peer ipv4:10.0.0.1:2222 {{grpc_status:{code}}}"
>"""


@pytest.mark.parametrize("code", [*ANSWERS, 4, 14])
def test_the_code_decides_in_python_too(code: int) -> None:
    """A program's own calls of gRPC say the code by name and number, and the peer's address."""
    tail = PYTHON.format(name=NAMES[code], code=code).splitlines()
    verdict = judge([ps(), worker(tail), worker(["step 9"], 1, None)])
    assert verdict is not None
    if code == 14:
        assert verdict.tasks == (TaskId("ps", 0),)
    else:
        assert verdict.tasks == (TaskId("worker", 0),) and verdict.sure is (code in ANSWERS)
        assert "shard 7 is not mine, on ipv4:10.0.0.1:2222" in verdict.text


WAITS = [
    "I0000 master.cc:278] CreateSession still waiting for response from worker: "
    "/job:worker/replica:0/task:0"
]


@pytest.mark.parametrize("tail", [WAITS, ["tf1: worker:1 waits for the chief's variables"]])
def test_too_few_steps_for_a_second_worker(tail: list[str]) -> None:
    """The chief is through before another worker has begun: the sentence says who had ended, and
    when; what the chief said as it closed its session is no evidence."""
    end = ["Done", "UNAVAILABLE: recvmsg:Connection reset by peer"]
    chief, late = worker(end, 0, 0), replace(worker(tail, 1, None), hangs_for=60.0)
    verdict = judge([ps(), chief, late])
    assert verdict is not None and verdict.kind is Kind.LEFT_EARLY
    at = time.strftime("%H:%M:%S", time.localtime(20.0))
    assert verdict.text.startswith(f"worker:0 on tf2 left with exit code 0 at {at}; 1 other waited")
    assert [one.task for one in verdict.evidence] == [late.task]


def test_a_task_that_is_through_is_no_victim() -> None:
    """What it said last, as its session was closed, is no evidence."""
    end = ["Done: test accuracy 0.9", "UNAVAILABLE: recvmsg:Connection reset by peer"]
    through, hangs = worker(end, 0, 0), worker(["step 9 loss 0.5"], 1, 1)
    verdict = judge([ps(), through, hangs])
    assert verdict is not None and verdict.tasks == (TaskId("worker", 1),)
    assert not [one for one in verdict.evidence if one.task == through.task]
