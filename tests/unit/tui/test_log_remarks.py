"""Which lines are remarks, and which are never."""

from __future__ import annotations

import re

import pytest

from launcher.store.metric_lines import Extractor
from tests.support.remarks import ALL_REMARKS, REMARKS
from tui.log.hints import hint_for
from tui.log.query import ERRORS, Chunk
from tui.log.remarks import LONGEST, count_text, remark_source

SHOWN = [
    "",
    "worker:0 listens on localhost:16364",
    "After 100 training steps (100 global steps), loss on training batch is 0.2507.",
    "E0000 00:00:1795302448.814144  935012 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "2023-12-05 09:29:18.697209: E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:9342] "
    "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
    "2024-10-11 13:14:15.617: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2021] Created "
    "device /job:localhost/replica:0/task:0/device:GPU:0 with 22290 MB memory:  -> device: 0, "
    "name: NVIDIA L4, pci bus id: 0000:00:03.0, compute capability: 8.9",
    "I0000 00:00:1795302452.155  935012 service.cc:153] XLA service 0x55b9095ddfe0 initialized for "
    "platform CUDA (this does not guarantee that XLA will be used). Devices:",
    "W0000 00:00:1795302452.155  935012 local_rendezvous.cc:412] Local rendezvous is aborting with "
    "status: UNAVAILABLE: Socket closed",
    "W0000 00:00:1795302452.155  935012 local_rendezvous.cc:412] Local rendezvous is aborting with "
    "status: ABORTED: Stopping remaining executors. "
    "[type.googleapis.com/tensorflow.DerivedStatus='']",
    "I0000 00:00:1795302452.155  935012 master.cc:243] Scanning workers for devices: 2 total "
    "workers",
    "2025-01-02 03:04:05.678: I tensorflow/core/distributed_runtime/master.cc:246] CreateSession "
    "still waiting for response from worker: /job:worker/replica:0/task:1",
    "WARNING:2024-06-25 00:34:55,143:jax._src.xla_bridge:940: A Google TPU may be present on this "
    "machine, but either a TPU-enabled jaxlib or libtpu is not installed. Falling back to cpu.",
    "I1204 13:13:42.884638 1398 xla_bridge.py:895] Unable to initialize backend 'cuda': ",
    "TensorBoard 2.21.0 at http://localhost:6006/ (Press CTRL+C to quit)",
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "Segmentation fault (core dumped)",
]
ALARMS = [
    "ERROR",
    "FATAL",
    "Traceback (most recent call last):",
    "No space left on device",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "RESOURCE_EXHAUSTED: OOM when allocating tensor",
    "PermissionError",
    "proxy_refused",
    "loss nan",
    "step 3 loss 0.5",
    "worker:1 failed",
]


@pytest.mark.parametrize("source", REMARKS)
def test_known_remarks(source: str) -> None:
    """Each is known by its source, also as a pseudo-terminal ends it."""
    for line in REMARKS[source]:
        assert remark_source(line.encode()) == source, line
        assert remark_source(line.encode() + b"\r") == source, line


def test_what_says_something_is_no_remark() -> None:
    """Errors, lines of the training, and what TensorFlow says of this host or this cluster."""
    for line in SHOWN:
        assert remark_source(line.encode()) is None, line


LOST = [
    "Additional GRPC error information from remote target /job:ps/replica:0/task:0 while calling "
    "/tensorflow.WorkerService/RecvTensor:",
    "W0000 00:00:1795881462.534928   22073 local_rendezvous.cc:412] Local rendezvous is aborting "
    "with status: UNAVAILABLE: Socket closed",
    "W0000 00:00:1795881462.534928   22073 master_session.cc:2166] UNAVAILABLE: Deadline passed",
    "UNAVAILABLE: From /job:ps/replica:0/task:0:",
]


@pytest.mark.parametrize("line", LOST)
def test_a_peer_that_is_lost_in_a_step_is_no_remark(line: str) -> None:
    """Only a session's last words to tasks that have left are: `DeleteWorkerSession`."""
    assert remark_source(line.encode()) is None


def test_no_remark_is_an_error_a_hint_or_a_metric() -> None:
    """The rules for errors, hints and metrics know none of the remarks."""
    for line in ALL_REMARKS:
        data = line.encode() + b"\n"
        assert ERRORS.lines(Chunk(0, data, len(data))) == ([], 0), line
        assert hint_for(line) is None, line
        assert not list(Extractor().feed(data, 0.0)), line


def test_no_other_severity() -> None:
    """Equal words as an error or a fatal error are shown."""
    headed = re.compile(r"^(|\d{4}-\S+ \S+: )[IWE](?=\d{4} | )")
    changed = 0
    for line in ALL_REMARKS:
        for severity in "EF":
            other = headed.sub(rf"\1{severity}", line)
            if other != line:
                changed += 1
                assert remark_source(other.encode()) is None, other
    assert changed > 40


def test_nothing_hides_in_a_remark() -> None:
    """Whatever else is on its line, before, within or behind it, a remark shows it."""
    for line in ALL_REMARKS:
        words = [match.span() for match in re.finditer(r"\S+", line)]
        for alarm in ALARMS:
            hostile = [f"{line} {alarm}", f"{alarm} {line}", f"{line}\r{alarm}", f"{alarm}\r{line}"]
            hostile += [f"{line}\x1b[2K{alarm}", f"{line}\0{alarm}", f"{line}\t{alarm}"]
            hostile += [line[:start] + alarm + line[end:] for start, end in words]
            for text in set(hostile) - {line}:
                assert remark_source(text.encode()) is None, text
    assert remark_source(b"I" * (LONGEST + 1)) is None


def test_sources_are_named() -> None:
    """Numbers in groups, one or several sources; absl alone only."""
    assert count_text(1, ["gRPC"]) == "1 routine message of gRPC"
    assert count_text(1000, ["absl", "TensorFlow"]) == "1,000 routine messages of TensorFlow"
    assert count_text(2, ["absl"]) == "2 routine messages of absl"
    assert count_text(3, ["TensorFlow", "JAX"]) == "3 routine messages of JAX and TensorFlow"
