"""Explanations of log lines and signals of a failing cluster: what they mean, and what to do.

The table holds the messages that people who run ps/worker clusters ask about again and again.
It knows lines alone; which task a line speaks of is handed back, so that who shows the hint can
say how that task is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2

from ..ids import TaskId

PORT_IN_USE = "port in use"
MAX_LINE = 8 * 1024
"""Characters of a line that are looked at: what a person should know stands at its beginning."""


@dataclass(frozen=True)
class Hint:
    """Meaning of a line. `about` is the other task that the line names, `port` the port."""

    kind: str
    text: str
    about: TaskId | None = None
    port: int | None = None


@dataclass(frozen=True)
class _Signature:
    kind: str
    pattern: Any
    text: str
    unless: Any = None
    """Further text of lines in which the pattern means nothing."""


def _sign(kind: str, pattern: str, text: str, unless: str | None = None) -> _Signature:
    # RE2: its time grows with the line alone, whatever a task prints.
    return _Signature(kind, re2.compile(pattern), text, unless and re2.compile(unless))


_DRIVER = (
    "TensorFlow's CUDA and the host's driver do not fit together: a newer driver, or hide "
    "the GPU with CUDA_VISIBLE_DEVICES=-1"
)


# The first that matches counts: the more telling ones stand first.
SIGNATURES: tuple[_Signature, ...] = (
    _sign(
        PORT_IN_USE,
        r"Could not start gRPC server|[Aa]ddress already in use|Failed to add (?:any )?port",
        "the port is taken: a leftover of an earlier run, or another program; "
        "`tfmux check` names it, and port `auto` avoids it",
    ),
    _sign(
        "waiting for a task",
        r"CreateSession still waiting for response from worker: "
        r"/job:(?P<job>\w+)/replica:\d+/task:(?P<index>\d{1,9})\b",
        "the session begins when this task answers: it is not up, or its address cannot be "
        "reached from here",
    ),
    _sign(
        "proxy",
        r"(?i)http proxy handshake|proxy.{0,40}(?:refused|failed|returned)|CONNECT.{0,20}\b403\b",
        "a proxy variable (http_proxy, https_proxy) catches the cluster's own traffic: put its "
        "hosts into no_proxy",
    ),
    _sign(
        "cannot connect",
        r"[Ff]ailed to connect to all addresses|failed to connect to remote host"
        r"|Connection refused.*\b(?:grpc|ipv[46]:)|UNAVAILABLE: .*(?:[Cc]onnection|[Ss]ocket)",
        "the other side does not answer: that task has ended or not begun, or a firewall or a "
        "name that resolves differently stands between",
    ),
    _sign(
        "foreign checkpoint",
        r"Restoring from checkpoint failed|Key .+ not found in checkpoint"
        r"|Assign requires shapes of both tensors to match"
        r"|Unsuccessful TensorSliceReader constructor|DataLossError",
        "the checkpoint in the log directory is another model's, or half written: use a fresh "
        "log directory, or --resume only with the same model",
    ),
    _sign(
        "GPU out of memory",
        r"(?:CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating tensor.*GPU"
        r"|failed to allocate .* from device)",
        "the GPU's memory is full: a smaller batch, fewer tasks on this GPU, or "
        "TF_FORCE_GPU_ALLOW_GROWTH=true",
    ),
    _sign(
        "out of memory",
        r"\bMemoryError\b|std::bad_alloc|[Cc]annot allocate memory|OOM when allocating tensor"
        r"|[Oo]ut of memory: [Kk]ill|RESOURCE_EXHAUSTED",
        "the host's memory is full: a smaller batch or fewer tasks on this host",
    ),
    _sign(
        "CUDA and driver",
        r"CUDA driver version is insufficient|no kernel image is available"
        r"|CUDNN_STATUS_NOT_INITIALIZED|kernel version .* does not match DSO version",
        _DRIVER,
    ),
    _sign(
        "CUDA and driver",
        r"failed call to cuInit",
        _DRIVER,
        # On a machine without a GPU every start says one of these two: nothing is wrong there.
        unless=r"failed call to cuInit.*(?:UNKNOWN ERROR \(303\)|no CUDA-capable device)",
    ),
    _sign(
        "TensorFlow 1",
        r"module ['\"]tensorflow(?:\._api\.v2\.(?:train|nn|layers|summary|logging))?['\"] has "
        r"no attribute|No module named ['\"]tensorflow\.(?:contrib|examples)\b",
        "a program for TensorFlow 1 runs unchanged by `python -m trainer tf1 SCRIPT …`, in a "
        'cluster file command = ["{python}", "{trainer}", "tf1", "SCRIPT", …]',
    ),
    _sign(
        "no such module",
        r"ModuleNotFoundError: No module named ['\"](?P<name>[\w.]+)['\"]",
        "the host's Python lacks {name}: set `python` of this host to one that has it, or bring "
        "it with `workdir`",
    ),
    _sign(
        "NaN",
        r"NanLossDuringTrainingError|Model diverged with loss = NaN"
        r"|(?i:\bloss\b[^\n]{0,30}\bnan\b)",
        "the loss is no number any more: a smaller learning rate, clipped gradients, and a look "
        "at the data",
    ),
    _sign(
        "permission",
        r"PermissionError|[Pp]ermission denied",
        "this user may not do that on this host: look at the owner of the path",
    ),
    _sign(
        "disk full",
        r"No space left on device|Disk quota exceeded",
        "the disk of this host is full: checkpoints and logs are what grows",
    ),
    _sign(
        "no such file",
        r"FileNotFoundError|NOT_FOUND: .*[Nn]o such file",
        "the path is missing on this host: only `workdir` is brought there",
    ),
)

_SIGNALS = {
    "KILL": (
        "sent by another program",
        "most often by the kernel, when memory is full (`dmesg` on the host says so), or by Slurm "
        "or a container at its limit",
    ),
    "ILL": (
        "an instruction that the processor lacks",
        "the host's processor is older than the program: TensorFlow's packages need AVX",
    ),
    "BUS": (
        "a file in memory became shorter",
        "or its disk is full, most often /dev/shm",
    ),
    "SEGV": (
        "a library crashed",
        "no line of Python failed; PYTHONFAULTHANDLER=1 in `env` prints where",
    ),
}
"""Kind and meaning of a signal that ended a task and that this program did not send."""


def hint_for_signal(name: str | None) -> Hint | None:
    """Meaning of a signal such as `KILL` that came from outside the run."""
    known = _SIGNALS.get(name or "")
    return Hint(*known) if known else None


_PORT = re2.compile(r":(\d{2,5})\b")
# Nearly every line has none of these: under a flood the patterns would cost more than drawing.
_NEEDLES = (
    "rror", "ailed", "FAILED", "in use", "waiting", "roxy", "403", "efused", "UNAVAILABLE",
    "OOM", "emory", "CUDA", "CUDNN", "kernel", "ermission", "nan", "NaN", "No space", "quota",
    "heckpoint", "TensorSlice", "requires shapes", "bad_alloc", "EXHAUSTED", "diverged",
    "NOT_FOUND", "failed",
)  # fmt: skip


def hint_for(line: str) -> Hint | None:
    """Meaning of a line; None for the lines that need no words."""
    line = line[:MAX_LINE]
    if not any(needle in line for needle in _NEEDLES):
        return None
    for signature in SIGNATURES:
        match = signature.pattern.search(line)
        if match is None or (signature.unless and signature.unless.search(line)):
            continue
        groups = match.groupdict()
        about = None
        if groups.get("job") is not None and groups.get("index") is not None:
            about = TaskId(groups["job"], int(groups["index"]))
        port = _PORT.search(line) if signature.kind == PORT_IN_USE else None
        text = signature.text.replace("{name}", groups.get("name") or "it")
        return Hint(signature.kind, text, about, int(port.group(1)) if port else None)
    return None
