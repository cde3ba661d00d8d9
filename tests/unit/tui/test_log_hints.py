"""Known failures in logs are explained; ordinary lines are left alone."""

from __future__ import annotations

import pytest

from launcher.ids import TaskId
from tui.log.hints import hint_for, hint_for_signal


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "E0000 server.cc:53] Failed to add port to server: No address added: 0.0.0.0:2222",
            "port",
        ),
        (
            "tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server",
            "port",
        ),
        (
            "I tensorflow/core/distributed_runtime/master.cc:267] CreateSession still waiting for "
            "response from worker: /job:ps/replica:0/task:1",
            "waiting",
        ),
        (
            "UNAVAILABLE: failed to connect to all addresses; last error: ipv4:10.0.0.1:2222",
            "connect",
        ),
        (
            "E0000 http_connect_handshaker.cc:312] HTTP proxy handshake with 10.1.1.1 failed",
            "proxy",
        ),
        ("NotFoundError: Key hidden/weights not found in checkpoint", "checkpoint"),
        ("DataLossError: corrupted record at 0", "checkpoint"),
        ("failed to allocate 2.1G (2254857830 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY", "GPU"),
        ("MemoryError", "out of memory"),
        ("ModuleNotFoundError: No module named 'tensorflow'", "module"),
        ("AttributeError: module 'tensorflow' has no attribute 'app'", "TensorFlow 1"),
        (
            "AttributeError: module 'tensorflow._api.v2.train' has no attribute 'Supervisor'",
            "TensorFlow 1",
        ),
        ("ModuleNotFoundError: No module named 'tensorflow.contrib'", "TensorFlow 1"),
        ("PermissionError: [Errno 13] Permission denied: '/data'", "permission"),
        ("After 3 training steps (9 global steps), loss on training batch is nan.", "NaN"),
        ("failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error", "CUDA"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("UNKNOWN: Could not start gRPC server", "port"),
        ("HTTP PROXY handshake with 10.1.1.1", "proxy"),
        ("step 300 loss: Nan", "NaN"),
    ],
)
def test_known_failures_are_explained(line: str, kind: str) -> None:
    """Each signature of the table is recognised in a line as it is really printed."""
    hint = hint_for(line)
    assert hint is not None and kind in hint.kind


def test_a_hint_names_the_task_the_port_and_the_module() -> None:
    """What the line says of others is handed on."""
    waiting = hint_for(
        "CreateSession still waiting for response from worker: /job:worker/replica:0/task:12"
    )
    assert waiting is not None and waiting.about == TaskId("worker", 12)
    taken = hint_for("bind 10.77.0.1:2222: Address already in use")
    assert taken is not None and taken.port == 2222
    module = hint_for("ModuleNotFoundError: No module named 'numpy'")
    assert module is not None and "lacks numpy" in module.text


@pytest.mark.parametrize(
    "line",
    [
        "",
        "After 300 training steps (912 global steps), loss on training batch is 0.4512.",
        "loss: 0.31 - nanoseconds: 12",
        "I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized",
    ],
)
def test_ordinary_lines_have_no_hint(line: str) -> None:
    """A hint that cries wolf is worse than none."""
    assert hint_for(line) is None


def test_a_signal_from_elsewhere_is_explained() -> None:
    """The kernel out of memory, an old processor; TERM needs no words."""
    killed, illegal = hint_for_signal("KILL"), hint_for_signal("ILL")
    assert killed is not None and "dmesg" in killed.text
    assert illegal is not None and "AVX" in illegal.text
    assert hint_for_signal("TERM") is None and hint_for_signal(None) is None
