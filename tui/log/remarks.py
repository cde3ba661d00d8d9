"""Remarks: lines that TensorFlow, JAX and the libraries below them print of themselves at nearly
every start and end, whatever the program is and however it goes.

A log line may be written to look like one, so each remark is described from its first to its last
byte. Nothing in it is left open but numbers and names of CPU features: there is no room for
another message. Of severity E only what hosts without a GPU, and GPU builds at every start, say
is a remark; F never is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import re2

from launcher.quantities import counted
from tui.log.guesses import guess

LONGEST = 1024
"""Bytes; no remark is longer."""

# Before the message: severity, time, and the source file; once absl's log is initialised, its
# form, before that TensorFlow's own.
_HEADER = (
    r"(?:[{severities}]\d{{4}} \d\d:\d\d:\d+\.\d+ +\d+ "
    r"|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [{severities}] (?:[\w.-]+/)*)"
)
_FEATURES = r"(?: (?:AMX|AVX|FMA|SSE)[A-Z0-9_]*(?:\.\d)?)+"
_INFO = (
    r"port\.cc:\d+\] oneDNN custom operations are on\. You may see slightly different numerical "
    r"results due to floating-point round-off errors from different computation orders\. To turn "
    r"them off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`\.",
    r"cudart_stub\.cc:\d+\] Could not find cuda drivers on your machine, GPU will not be used\.",
    r"cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized to use available CPU "
    r"instructions in performance-critical operations\.",
    r"cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized with oneAPI Deep Neural "
    r"Network Library \(oneDNN\) to use the following CPU instructions in performance-critical "
    rf"operations: {_FEATURES}",
    r"mlir_graph_optimization_pass\.cc:\d+\] MLIR V1 optimization pass is not enabled",
    r"mlir_graph_optimization_pass\.cc:\d+\] None of the MLIR Optimization Passes are enabled "
    r"\(registered \d+\)",
    r"dump_mlir_util\.cc:\d+\] disabling MLIR crash reproducer, set env var "
    r"`MLIR_CRASH_REPRODUCER_DIRECTORY` to enable\.",
    r"device_compiler\.h:\d+\] Compiled cluster using XLA!  This line is logged at most once for "
    r"the lifetime of the process\.",
    r"service\.cc:\d+\] XLA service 0x[0-9a-f]+ initialized for platform Host \(this does not "
    r"guarantee that XLA will be used\)\. Devices:",
    r"service\.cc:\d+\]   StreamExecutor (?:device \(\d+\)|\[\d+\]): Host, Default Version"
    r"(?: \(Driver: [\d.]+; Runtime: [\d.]+; Toolkit: [\d.]+; DNN: [\d.]+\))?",
    r"cuda_(?:gpu_)?executor\.cc:\d+\] successful NUMA node read from SysFS had negative value "
    r"\(-1\), but there must be at least one NUMA node, so returning NUMA node zero\."
    r"(?: See more at https://github\.com/torvalds/linux/blob/v6\.0/Documentation/ABI/testing/"
    r"sysfs-bus-pci#L344-L355)?",
    r"cuda_(?:gpu_)?executor\.cc:\d+\] could not open file to read NUMA node: "
    r"/sys/bus/pci/devices/[0-9a-f:.]+/numa_node",
    r"profiler_session\.cc:\d+\] Profiler session "
    r"(?:initializing|started|collecting data|tear down)\.",
    r"coordination_service\.cc:\d+\] Initializing CoordinationService",
    r"worker\.cc:\d+\] Cancellation requested for RunGraph\.",
)
_INFO_OR_WARNING = (
    r"local_rendezvous\.cc:\d+\] Local rendezvous is aborting with status: "
    r"(?:ABORTED: Cleanup -?\d+|ABORTED: Step -?\d+ cancelled\.  Cancelling rendezvous\."
    r"|CANCELLED: RecvFromRemoteAsync is cancelled\.|OUT_OF_RANGE: End of sequence)"
    r"(?: \[type\.googleapis\.com/tensorflow\.DerivedStatus=''\])?",
    r"local_rendezvous\.cc:\d+\] Local rendezvous (?:recv|send) item cancelled\. Key hash: \d+",
    r"grpc_worker_service\.cc:\d+\] RecvTensor cancelled for -?\d+",
    r"py_utils\.cc:\d+\] TF-TRT Warning: Could not find TensorRT",
    r"computation_placer\.cc:\d+\] computation placer already registered\. Please check linkage "
    r"and avoid linking the same target more than once\.",
    r"xplane_to_step_stats\.cc:\d+\] GPU trace was not collected\.",
    r"dataset\.cc:\d+\] Input of GeneratorDatasetOp::Dataset will not be optimized because the "
    r"dataset does not implement the AsGraphDefInternal\(\) method needed to apply "
    r"optimizations\.",
)
# A session that is closed says good-bye to all tasks that it knew, also to those that have left.
_LEFT = (
    r"(?:recvmsg:Connection reset by peer|recvmsg:Broken pipe|Socket closed"
    r"|failed to connect to all addresses; last error: UNKNOWN: "
    r"ipv(?:4:\d+(?:\.\d+){3}|6:(?:%5B|\[)[0-9a-f:.]+(?:%5D|\])):\d+: "
    r"Failed to connect to remote host: Connection refused)"
)
_SESSION_CLOSED = rf"master_session\.cc:\d+\] UNAVAILABLE: {_LEFT}"
_SESSION_CLOSED_CONTINUED = (
    r"Additional GRPC error information from remote target "
    r"/job:(?:chief|evaluator|local|master|ps|workers?)/replica:\d+/task:\d+ while calling "
    r"/tensorflow\.WorkerService/DeleteWorkerSession:",
    r":UNKNOWN:Error received from peer  \{(?:"
    rf'grpc_message:"{_LEFT}", grpc_status:14|grpc_status:14, grpc_message:"{_LEFT}")\}}',
)
_ERROR = (
    r"cuda_(?:platform|driver)\.cc:\d+\] failed call to cuInit: (?:INTERNAL: CUDA error: Failed "
    r"call to cuInit: )?(?:UNKNOWN ERROR \(303\)|CUDA_ERROR_NO_DEVICE: no CUDA-capable device is "
    r"detected)",
    r"cuda_(?:blas|dnn|fft)\.cc:\d+\] Unable to register cu(?:BLAS|DNN|FFT) factory: Attempting to "
    r"register factory for plugin cu(?:BLAS|DNN|FFT) when one has already been registered",
)
_CONTINUED = (
    rf"To enable the following instructions:{_FEATURES}, in other operations, "
    r"rebuild TensorFlow with the appropriate compiler flags\.",
    r"To enable them in other operations, rebuild TensorFlow with the appropriate compiler "
    r"flags\.",
    r"Your kernel may have been built without NUMA support\.",
)
_GRPC = (
    r"fork_posix\.cc:\d+\] Other threads are currently calling into gRPC, skipping fork\(\) "
    r"handlers",
    r"ev_epoll1_linux\.cc:\d+\] grpc epoll fd: \d+",
)
_TENSORBOARD = (
    r"TensorFlow installation not found - running with reduced feature set\.",
    r"NOTE: Using experimental fast data loading logic\. To disable, pass",
    r' {4}"--load_fast=false" and report issues on GitHub\. More details:',
    r" {4}https://github\.com/tensorflow/tensorboard/issues/4784",
    r"Serving TensorBoard on localhost; to expose to the network, use a proxy or pass --bind_all",
)
_JAX = (
    r"(?:INFO:(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+:)?jax\._src\.xla_bridge:(?:\d+: )?"
    r"|I\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ xla_bridge\.py:\d+\] )"
    r"Unable to initialize backend '(?:tpu|tpu_driver|rocm)': "
    r"(?:INTERNAL: Failed to open libtpu\.so: libtpu\.so: cannot open shared object file: "
    r"No such file or directory"
    r"|NOT_FOUND: Unable to find driver in registry given worker: ?"
    r"|NOT_FOUND: Could not find registered platform with name: \"rocm\"\. Available platform "
    r"names are:(?: (?:Interpreter|Host|CUDA)){1,3}"
    r"|module 'jaxlib\.xla_extension' has no attribute "
    r"'(?:GpuAllocatorConfig|get_tpu_client)')",
)
_ABSL = (
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR",
    r"WARNING: Logging before InitGoogleLogging\(\) is written to STDERR",
    r"WARNING: Logging before flag parsing goes to stderr\.",
)


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _headed(severities: str, patterns: Iterable[str]) -> str:
    return _HEADER.format(severities=severities) + _any(patterns)


# One expression for each source, without groups: that is what RE2 is fast at.
_SOURCES: dict[str, Any] = {
    source: re2.compile(pattern.encode())
    for source, pattern in {
        "TensorFlow": _any(
            (
                _headed("I", _INFO),
                _headed("IW", (*_INFO_OR_WARNING, _SESSION_CLOSED)),
                _headed("E", _ERROR),
                *_CONTINUED,
                *_SESSION_CLOSED_CONTINUED,
            ),
        ),
        "absl": _any(_ABSL),
        "TensorBoard": _any(_TENSORBOARD),
        "gRPC": _headed("I", _GRPC),
        "JAX": _any(_JAX),
    }.items()
}
_BEGINNINGS = frozenset(b"EIW2TYNSA: ")
"""First bytes of remarks: other lines, nearly all, are not looked at any further."""


@guess(otherwise=None)
def remark_source(line: bytes) -> str | None:
    """The program or library that a line is a remark of; None for every other line."""
    if not line or line[0] not in _BEGINNINGS or len(line) > LONGEST:
        return None
    line = line.rstrip(b"\r")  # of a pseudo-terminal; in the middle it would rewrite the line
    for name, form in _SOURCES.items():
        if form.fullmatch(line):
            return name
    return None


def count_text(count: int, sources: Iterable[str]) -> str:
    """`14 routine messages of TensorFlow`. absl, with which the others log, is named when alone."""
    named = sorted(set(sources) - {"absl"}) or ["absl"]
    return f"{counted(count, 'routine message')} of {' and '.join(named)}"
