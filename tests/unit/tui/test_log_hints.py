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
        ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.1}", "NaN"),
        ("step 3: loss = tensor(nan, device='cuda:0')", "NaN"),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; "
            "23.69 GiB total capacity; 21.1 GiB already allocated)",
            "GPU out of memory",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
            "GPU out of memory",
        ),
        ("RuntimeError: CUDA error: out of memory", "GPU out of memory"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "GPU"),
        (
            "Out of memory error on GPU 0. Cannot allocate 1.2GB memory on GPU 0, 31GB memory has "
            "been allocated",
            "GPU out of memory",
        ),
        (
            "OOM when allocating tensor with shape[64,224] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
            "GPU out of memory",
        ),
        (
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
            "allocate 17179869184 bytes.",
            "device out of memory",
        ),
        (
            "JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 12.00GiB "
            "on device ordinal 0",
            "device out of memory",
        ),
        (
            "grpc: RESOURCE_EXHAUSTED: Received message larger than max (9437259 vs. 4194304)",
            "message too large",
        ),
        (
            "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory.",
            "shared memory",
        ),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", "out of memory"),
        ("/bin/bash: line 1:  4242 Killed                  python train.py", "out of memory"),
        ("ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on 41000", "GPU twice"),
        ("RuntimeError: CUDA error: invalid device ordinal", "no such GPU"),
        ("RuntimeError: No CUDA GPUs are available", "no such GPU"),
        ("tf1:88:88 [0] NCCL INFO Bootstrap : no socket interface found", "interface"),
        (
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
            "OpType=ALLREDUCE, NumelIn=1) ran for 600000 milliseconds before timing out.",
            "timed out",
        ),
        (
            "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 1800000ms for "
            "recv operation to complete",
            "timed out",
        ),
        (
            "RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:229",
            "another rank",
        ),
        (
            "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):",
            "another rank",
        ),
        (
            "client.h:80] Terminating process because the JAX distributed service detected fatal "
            "errors. This most likely indicates that another task died",
            "another rank",
        ),
        (
            "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
            "do not meet",
        ),
        (
            "[W socket.cpp:697] [c10d] The client socket has timed out after 60s while trying to "
            "connect to (tf1, 29500).",
            "do not meet",
        ),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275", "NCCL"),
        ("socket.gaierror: [Errno -2] Name or service not known", "resolve"),
        ("ssh: Could not resolve hostname tf9: Temporary failure in name resolution", "resolve"),
        (
            "UNAVAILABLE: DNS resolution failed for tf9:2222: C-ares status is not ARES_SUCCESS",
            "resolve",
        ),
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
            "Internet",
        ),
        (
            "ImportError: libcudart.so.12: cannot open shared object file: No such file",
            "CUDA libraries",
        ),
        ("Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so", "CUDA libraries"),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file",
            "system libraries",
        ),
        ("python: /lib64/libc.so.6: version `GLIBC_2.34' not found", "system libraries"),
        ("RuntimeError: CUDA error: device-side assert triggered", "CUDA error"),
        ("OSError: [Errno 24] Too many open files: 'shard-3'", "open files"),
        (
            "ValueError: Attempt to convert a value (PerReplica:{0: <tf.Tensor>}) with an "
            "unsupported type",
            "Keras 3",
        ),
        (
            "ValueError: File format not supported: filepath=m. Keras 3 only supports V3 `.keras` "
            "files and legacy H5 format files",
            "Keras 3",
        ),
        (
            "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?",
            "Python 2",
        ),
        ("NameError: name 'xrange' is not defined", "Python 2"),
        ("ModuleNotFoundError: No module named 'cPickle'", "Python 2"),
        ("AttributeError: 'dict' object has no attribute 'iteritems'", "Python 2"),
        ("AttributeError: module 'numpy' has no attribute 'float'.", "NumPy"),
        ("There are not enough slots available in the system to satisfy the 8 slots", "slots"),
        ("mpirun has detected an attempt to run as root.", "root"),
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
        "step 3 loss 0.5 | nan skipped: 0",
        "| loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        "RESOURCE_EXHAUSTED",
        "DEBUG retrying after RESOURCE_EXHAUSTED: quota of requests a minute",
        "NCCL version 2.21.5+cuda12.4",
        "tf1:88:88 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
        "[Gloo] Rank 0 is connected to 3 peer ranks. Expected number of peer ranks is : 3",
        "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: no file",
        "saved 3 shards, killed 0 workers",
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
