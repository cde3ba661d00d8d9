"""Known failures in logs are explained; ordinary lines are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tui.crash import FILE_NAME, report_guesses
from tui.log import hints, remarks
from tui.log.guesses import MISSING, say_faults
from tui.log.hints import Hint, hint_for, hint_for_signal, known_cause
from tui.log.remarks import remark_source
from tui.outcome import report


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
        (
            "[E socket.cpp:462] [c10d] The server socket has failed to listen on any "
            "local network address.",
            "port in use",
        ),
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by "
            "insufficient shared memory (shm).",
            "shared memory full",
        ),
        (
            "RuntimeError: unable to mmap 1024 bytes from file </torch_12_34>: Cannot "
            "allocate memory (12)",
            "shared memory full",
        ),
        ("RuntimeError: unable to write to file </torch_3034_123> ", "shared memory full"),
        (
            "misc/shmutils.cc:68 NCCL WARN Call to posix_fallocate failed : No space "
            "left on device",
            "shared memory full",
        ),
        (
            "NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes",
            "shared memory full",
        ),
        (
            "RuntimeError: Timed out initializing process group in store based barrier "
            "on rank: 2, for key: store_based_barrier_key:1 (world_size=2, "
            "worker_count=4, timeout=0:30:00)",
            "ranks do not meet",
        ),
        (
            "RuntimeError: connect() timed out. Original timeout was 1800000 ms.",
            "ranks do not meet",
        ),
        (
            "RuntimeError: [1] is setting up NCCL communicator and retrieving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but "
            "store->get('0') got error: Connection reset by peer",
            "another rank has gone",
        ),
        (
            "torch.distributed.DistBackendError: [2] is setting up NCCL communicator and "
            "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
            "store->get('0') got error: Socket Timeout",
            "another rank has gone",
        ),
        (
            "[W socket.cpp:601] [c10d] recvValue failed: Connection reset by peer",
            "another rank has gone",
        ),
        (
            "RuntimeError: Broken pipe: sendBytes failed on SocketImpl(fd=54, "
            "addr=[tf1]:41000, remote=[tf2]:29500)",
            "another rank has gone",
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. "
            "Barrier_id: PjRT_Client_Connect. Timed out task names:",
            "ranks do not meet",
        ),
        (
            "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: "
            "[Init]Wait_for_all_tasks_to_register::0. This usually happens because a "
            "task triggered the barrier too early or too slowly.",
            "ranks do not meet",
        ),
        (
            "absl::Status: UNAVAILABLE: Failed to send RPC to coordination service. "
            "Either the leader task was preempted/died/restarted unexpectedly or this "
            "task is experiencing network issues.",
            "another rank has gone",
        ),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,073,741,824 "
            "bytes (allocated so far: 0 bytes).",
            "GPU out of memory",
        ),
        (
            "mxnet.base.MXNetError: [10:00:01] "
            "src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory",
            "GPU out of memory",
        ),
        (
            "2022-01-01 10:00:01.123456: W "
            "tensorflow/core/common_runtime/bfc_allocator.cc:462] Allocator (GPU_0_bfc) "
            "ran out of memory trying to allocate 2.00GiB (rounded to "
            "2147483648)requested by op Conv2D",
            "GPU out of memory",
        ),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for "
            "an array with shape (40000, 40000) and data type float64",
            "out of memory",
        ),
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running "
            "low on memory.",
            "out of memory",
        ),
        (
            "OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64: "
            "Resource temporarily unavailable",
            "too many processes",
        ),
        ("RuntimeError: can't start new thread", "too many processes"),
        ("TypeError: Descriptors cannot not be created directly.", "protobuf"),
        ("TypeError: Descriptors cannot be created directly.", "protobuf"),
        ("AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'", "protobuf"),
        ("ImportError: cannot import name 'builder' from 'google.protobuf.internal'", "protobuf"),
        (
            "2018-01-17 08:21:49.120154: F "
            "tensorflow/core/platform/cpu_feature_guard.cc:35] The TensorFlow library "
            "was compiled to use AVX2 instructions, but these aren't available on your "
            "machine.",
            "an instruction that the processor lacks",
        ),
        (
            "/bin/bash: line 1: 1234 Illegal instruction     (core dumped) python train.py",
            "an instruction that the processor lacks",
        ),
        (
            "RuntimeError: This version of jaxlib was built using AVX instructions, "
            "which your CPU and/or operating system do not support.",
            "an instruction that the processor lacks",
        ),
        (
            "E1027 15:11:27.184481 3266602 cuda_dnn.cc:456] Loaded runtime CuDNN "
            "library: 9.10.1 but source was compiled with: 9.13.1.  CuDNN library needs "
            "to have matching major version and equal or higher minor version.",
            "cuDNN",
        ),
        (
            "UnknownError: Failed to get convolution algorithm. This is probably because "
            "cuDNN failed to initialize, so try looking to see if a warning log message "
            "was printed above.",
            "cuDNN",
        ),
        ("could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR", "cuDNN"),
        (
            "FAILED_PRECONDITION: DNN library initialization failed. Look at the errors "
            "above for more details.",
            "cuDNN",
        ),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version "
            "11040). Please update your GPU driver",
            "CUDA and driver",
        ),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too "
            "old (found version 10010).",
            "CUDA and driver",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "CUDA and driver"),
        (
            "ImportError: "
            "/opt/conda/lib/python3.10/site-packages/torch/lib/../../nvidia/cusparse/lib/"
            "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version "
            "libnvJitLink.so.12",
            "CUDA libraries",
        ),
        (
            "RuntimeError: Attempting to deserialize object on a CUDA device but "
            "torch.cuda.is_available() is False.",
            "no such GPU",
        ),
        ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "no such GPU"),
        ("RuntimeError: received 0 items of ancdata", "too many open files"),
        (
            "HYDU_sock_connect (utils/sock/sock.c:113): unable to get host address for tf9",
            "a name does not resolve",
        ),
        ("OSError: [Errno 30] Read-only file system: '/data/ckpt'", "read-only"),
        ("RuntimeError: tf.placeholder() is not compatible with eager execution.", "TensorFlow 1"),
        (
            "RuntimeError: The Session graph is empty. Add operations to the graph "
            "before calling run().",
            "TensorFlow 1",
        ),
        (
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
            "Expected 96 from C header, got 88 from PyObject",
            "NumPy",
        ),
        ("Host key verification failed.", "SSH"),
        ("kex_exchange_identification: Connection closed by remote host", "SSH"),
        ("root@tf2: Permission denied (publickey,password).", "SSH"),
        ("RuntimeError: Error(s) in loading state_dict for ResNet:", "foreign checkpoint"),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "foreign checkpoint"),
        (
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed "
            "finding central directory",
            "foreign checkpoint",
        ),
        (
            "/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward: block: "
            "[0,0,0], thread: [0,0,0] Assertion `t >= 0 && t < n_classes` failed.",
            "CUDA error",
        ),
        (
            "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is "
            "probably exploding.",
            "NaN",
        ),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA "
            "with multiprocessing, you must use the 'spawn' start method",
            "CUDA after a fork",
        ),
        ("train.py: error: unrecognized arguments: --local-rank=0", "ranks"),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: "
            "environment variable MASTER_ADDR expected, but not set",
            "ranks",
        ),
        (
            (
                "E external/org_tensorflow/tensorflow/compiler/xla/python/local_client.cc:672] Ex"
                "ecution of replica 0 failed: Resource exhausted: Out of memory while trying to a"
                "llocate 5520758552 bytes."
            ),
            "device out of memory",
        ),
        (
            (
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocati"
                "ng 20029400304 bytes."
            ),
            "device out of memory",
        ),
        (
            (
                "Original error: RESOURCE_EXHAUSTED: Failed to allocate request for 176.00MiB (18"
                "4549376B) on device ordinal 0"
            ),
            "device out of memory",
        ),
        (
            (
                "node5:240:240 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10."
                "0.0.4<56849> returned 113(No route to host) errno 115(Operation now in progress)"
            ),
            "cannot connect",
        ),
        (
            (
                "ps-8:795:822 [0] include/socket.h:409 NCCL WARN Net : Connect to 192.168.1.9<542"
                "63> failed : No route to host"
            ),
            "cannot connect",
        ),
        (
            (
                "tj1:941227:943077 [0] include/socket.h:390 NCCL WARN Connect to 10.38.10.112<217"
                "24> failed : Connection refused"
            ),
            "cannot connect",
        ),
        (
            (
                "server1:6601:6625 [0] include/socket.h:385 NCCL WARN Net : Connection closed by "
                "remote peer"
            ),
            "NCCL",
        ),
        ("RuntimeError: Socket Timeout", "ranks do not meet"),
        (
            (
                "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transpo"
                "rt/tcp/pair.cc:144] no error"
            ),
            "ranks do not meet",
        ),
        ("NCCL failure common.cu:921 'unhandled system error'", "NCCL"),
        (
            (
                "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It i"
                "s possible that dataloader's workers are out of shared memory. Please try to rai"
                "se your shared memory limit."
            ),
            "shared memory full",
        ),
        (
            (
                "ERROR: Unexpected bus error encountered in worker. This might be caused by insuf"
                "ficient shared memory (shm)."
            ),
            "shared memory full",
        ),
        (
            (
                "ValueError: Only instances of `keras.Layer` can be added to a Sequential model. "
                "Received: <tensorflow_hub.keras_layer.KerasLayer object at 0x28ac6d4d0> (of type"
                " <class 'tensorflow_hub.keras_layer.KerasLayer'>)"
            ),
            "Keras 3",
        ),
        ("ModuleNotFoundError: No module named 'keras.legacy'", "no such module"),
        ("ValueError: Argument(s) not recognized: {'lr': 0.001}", "Keras 3"),
        (
            ("ValueError: The filename must end in `.weights.h5`. Received: filepath=model.h5"),
            "Keras 3",
        ),
        (
            (
                "ImportError: `keras.optimizers.legacy` is not supported in Keras 3. When using `"
                "tf.keras`, to continue using a `tf.keras.optimizers.legacy` optimizer, you can i"
                "nstall the `tf_keras` package"
            ),
            "Keras 3",
        ),
        (
            (
                "AttributeError: 'Adam' object has no attribute 'get_updates'. Keras 3 only suppo"
                "rts V3 `.keras` files"
            ),
            "Keras 3",
        ),
        (("OSError: [Errno 122] Disk quota exceeded: '/data/ckpt/epoch_14.pth'"), "disk full"),
        (
            (
                "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28"
                ', kind: StorageFull, message: "No space left on device" })'
            ),
            "disk full",
        ),
        (
            (
                "tensorflow.python.framework.errors_impl.ResourceExhaustedError: disk quota excee"
                "ded [Op:SaveV2]"
            ),
            "disk full",
        ),
        (
            (
                "RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 2304 vs"
                " 2198"
            ),
            "disk full",
        ),
        (
            (
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (re"
                "quired by /mnt/w/_C.so)"
            ),
            "system libraries",
        ),
        (
            ("OSError: libGL.so.1: cannot open shared object file: No such file or directory"),
            "system libraries",
        ),
        (
            (
                "CUDA error 209 at /home/w/ggml-cuda.cu:6701: no kernel image is available for ex"
                "ecution on the device"
            ),
            "CUDA and driver",
        ),
        (
            (
                "CUDA error at ../../common/inc/helper_cuda.h:1133 code=35(cudaErrorInsufficientD"
                'river) "cudaGetDeviceCount(&device_count)"'
            ),
            "CUDA and driver",
        ),
        (
            (
                "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (f"
                "ound version 11040)."
            ),
            "CUDA and driver",
        ),
        (
            (
                "E coordination_service.cc:1170] /job:jax_worker/replica:0/task:0 has been set to"
                " ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task"
                ":0 heartbeat timeout. This indicates that the remote task has failed"
            ),
            "another rank has gone",
        ),
        (
            (
                "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tas"
                "ks_to_register::0. This usually happens because a task triggered the barrier too"
                " early or too slowly."
            ),
            "ranks do not meet",
        ),
        (
            (
                "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barr"
                "ier_id: multihost_broadcast_sync0. Timed out task names:"
            ),
            "a collective timed out",
        ),
        (
            (
                "F0929 17:42:48.594200 1044529 client.h:77] Terminating process because the JAX d"
                "istributed service detected fatal errors. This most likely indicates that anothe"
                "r task died"
            ),
            "another rank has gone",
        ),
        (
            (
                "[W socket.cpp:601] [c10d] The IPv6 network addresses of (tf9, 29500) cannot be r"
                "etrieved (gai error: -2 - Name or service not known)."
            ),
            "a name does not resolve",
        ),
        (
            ("ValueError: host not found: Temporary failure in name resolution"),
            "a name does not resolve",
        ),
        (
            (
                "urllib3.exceptions.NameResolutionError: <urllib3.connection.HTTPSConnection obje"
                "ct at 0x7f>: Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in"
                " name resolution)"
            ),
            "a name does not resolve",
        ),
        (
            ("OSError: [Errno 24] Too many open files: '/data/train/0012.npz'"),
            "too many open files",
        ),
        (
            (
                "RuntimeError: unable to open shared memory object </torch_123_456> in read-write"
                " mode: Too many open files (24)"
            ),
            "too many open files",
        ),
        (
            ("SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?"),
            "Python 2",
        ),
        ("TabError: inconsistent use of tabs and spaces in indentation", "Python 2"),
        ("NameError: name 'xrange' is not defined", "Python 2"),
        (
            (
                "OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64: Resource t"
                "emporarily unavailable"
            ),
            "too many processes",
        ),
        (
            (
                "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step t"
                "asks have been OOM Killed."
            ),
            "out of memory",
        ),
        (
            (
                "numpy.core._exceptions.MemoryError: Unable to allocate 12.3 GiB for an array wit"
                "h shape (12, 3)"
            ),
            "out of memory",
        ),
        ("torch.OutOfMemoryError: Allocation on device", "GPU out of memory"),
        (
            (
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate("
                "handle)`"
            ),
            "GPU out of memory",
        ),
        (("RuntimeError: NPU out of memory. Tried to allocate 512.00 MiB"), "GPU out of memory"),
        (
            ("XPU out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.00 GiB total capacity)"),
            "GPU out of memory",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "CUDA error"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "cuDNN"),
    ],
)
def test_known_failures_are_explained(line: str, kind: str) -> None:
    """Each signature of the table is recognised in a line as it is really printed."""
    hint = hint_for(line)
    assert hint is not None and kind in hint.kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("NOT_FOUND: /data/train.tfrecords; No such file or directory", "no such file"),
        ("PERMISSION_DENIED: /data/model.ckpt; Permission denied", "permission"),
        ("RESOURCE_EXHAUSTED: /data/model.ckpt; No space left on device", "disk full"),
        ("FAILED_PRECONDITION: /data/model.ckpt; Read-only file system", "read-only"),
        ("RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[1048576,64]", "out of memory"),
        (
            "NOT_FOUND: Unsuccessful TensorSliceReader constructor: Failed to find any matching "
            "files for /data/model.ckpt",
            "no checkpoint",
        ),
        (
            "INVALID_ARGUMENT: Unsuccessful TensorSliceReader constructor: Failed to get matching "
            "files on log/model.ckpt-0: Not found: log",
            "no checkpoint",
        ),
    ],
)
def test_a_hint_about_an_answer_of_another_task_is_of_its_host(status: str, kind: str) -> None:
    """What a ps has answered stands in the log of the worker that has asked."""
    hint = hint_for(f"  W0000 op_kernel.cc:1858] OP_REQUIRES failed at io_ops.cc:117 : {status}")
    assert hint is not None and hint.kind == kind
    assert "the host that raised this" in hint.text and "this host" not in hint.text


def test_a_hint_names_the_task_the_port_and_the_module() -> None:
    """What the line says of others is handed on."""
    waiting = hint_for(
        "CreateSession still waiting for response from worker: /job:worker/replica:0/task:12"
    )
    assert waiting is not None and waiting.about == TaskId("worker", 12)
    taken = hint_for("bind 10.77.0.1:2222: Address already in use")
    assert taken is not None and taken.port == 2222
    module = hint_for("ModuleNotFoundError: No module named 'numpy'")
    assert module is not None and "has no numpy" in module.text


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
        "Using heartbeat timeout of 100 s",
        "monitoredBarrier passed in 12 ms",
        "Using monitoredBarrier with a timeout of 30 s",
        "EMFILE=0 ENFILE=0",
        "torch_shm_manager started with pid 1234",
        "DeprecationWarning: `tf.estimator` is deprecated, please use Keras",
        "INFO:tensorflow:Using config: {'_model_dir': '/tmp/m', 'tf.estimator': 1}",
        "W tensorflow/core/common_runtime/bfc_allocator.cc:245] Allocator "
        "(GPU_0_bfc) ran out of memory trying to allocate 2.27GiB. The caller "
        "indicates that this is not a failure, but this may mean that there could be "
        "performance gains if more memory were available.",
        "tf1:88:88 [0] NCCL INFO Call to connect returned Connection refused, retrying",
        "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: "
        "libtpu.so: cannot open shared object file: No such file or directory",
        "Saving model; no space left in the list of best checkpoints, dropping the oldest",
        "INFO NCCL version 2.20.5+cuda12.4",
        "node1:12:12 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>",
        "Estimated memory: 12 GB of 16 GB; will not run out of memory",
        ("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"),
        "loss scale reached 65536, nan skipped: 0",
        "Using Keras 3.6.0 with backend tensorflow",
        "keras: 3.6.0 is installed; weights saved as model.weights.h5",
        "connected to 10.0.0.4:2222, no route changes",
        "tests/test_errors.py::test_out_of_memory PASSED",
        "Retry 1/5 after timeout of loader, ok",
        (
            "I0000 coordination_service.cc:632] /job:worker/replica:0/task:1 has connected to"
            " coordination service. Incarnation: 12"
        ),
        "Python 2.7 is no longer supported since version 1.0",
        (
            "xla_bridge.py:123] Unable to initialize backend 'tpu': INTERNAL: Failed to open "
            "libtpu.so: libtpu.so: cannot open shared object file: No such file or directory"
        ),
        "cuda_diagnostics.cc:223] retrieving CUDA diagnostic information for host: tf1",
        "ulimit -n 65536: open files 1024 -> 65536",
        "/dev/shm 64G 12G 52G 19% /dev/shm",
        "early stopping: heartbeat of the coordinator every 10 s",
        "DataLoader: 8 workers, shared memory: on",
        "gpu 0: 12345 MiB of 16384 MiB, out of memory events: 0",
        "Gloo backend, rank 0 of 4, connected to all peers",
        "the error rate is 0.5, no NaN in loss",
        (
            "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register"
            " factory for plugin cuDNN when one has already been registered"
        ),
        "resolving host names of 4 hosts: ok",
        "Killed 3 stale processes before the start",
        "gpu_conv_algorithm_picker.cc:729] Failed to determine best cudnn convolution algorithm: "
        "Resource exhausted: Out of memory while trying to allocate 16777716 bytes.",
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


# Faults in what a front end guesses from text: each costs its sentence.

TAKEN = "OSError: [Errno 98] Address already in use"


class Broken:
    """Something in the place of a table or an expression; whoever asks it anything fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"boom in {name}")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_PATTERNS", Broken())
    monkeypatch.setattr(remarks, "_SOURCES", Broken())
    monkeypatch.setattr(hints, "_waited_for", _boom)


def _boom(*_: object) -> str:
    raise KeyError("nobody")


def test_a_fault_costs_a_sentence_and_is_said_once(
    broken: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = TaskId("worker", 0)
    for _ in range(3):
        assert hint_for(TAKEN) is None and remark_source(b"E a line") is None
        assert known_cause(Hint("waits", "in general", worker), None, {}) == ""
    report_guesses(tmp_path)
    said = capsys.readouterr().err
    assert said.count(MISSING) == 3 and "boom in Match" in said
    assert (tmp_path / FILE_NAME).read_text().count("Traceback (most recent call last)") == 3
    report_guesses(tmp_path)
    assert not capsys.readouterr().err


def test_the_report_of_a_failure_says_the_rest(
    broken: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ScriptedRun(tmp_path)
    worker = TaskId("worker", 0)
    run.task("worker:0", state=TaskState.FAILED, exit_code=1)
    failure = Failure(worker, "localhost", "exit 1", 1.0, tail=(TAKEN,))
    run.change(state=RunPhase.ENDED, outcome=Outcome.FAILED, exit_code=1, first_failure=failure)
    text = report(run.snapshot(), tmp_path)
    assert (
        "first failure: worker:0 on localhost: exit 1" in text and TAKEN in text and "◂" not in text
    )
    say_faults()
    assert MISSING in capsys.readouterr().err
