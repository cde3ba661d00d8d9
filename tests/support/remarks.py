"""Remarks as TensorFlow, JAX and the libraries below them print them."""

from __future__ import annotations

ABSL = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
ONEDNN = (
    "I0000 00:00:1795302447.516337  935012 port.cc:153] oneDNN custom operations are on. You may "
    "see slightly different numerical results due to floating-point round-off errors from "
    "different computation orders. To turn them off, set the environment variable "
    "`TF_ENABLE_ONEDNN_OPTS=0`."
)
CUDA = (
    "I0000 00:00:1795302447.516648  935012 cudart_stub.cc:31] Could not find cuda drivers on your "
    "machine, GPU will not be used."
)
CLEANUP = (
    "W0000 00:00:1795302452.155  935012 local_rendezvous.cc:412] Local rendezvous is aborting with "
    "status: ABORTED: Cleanup 7214 [type.googleapis.com/tensorflow.DerivedStatus='']"
)
FEATURES = "AVX2 AVX512F AVX512_VNNI AVX512_BF16 AVX_VNNI FMA"
REMARKS = {
    "absl": [ABSL],
    # What 2.21 printed here, then what 2.x prints on hosts with GPUs, in TensorFlow's own form.
    "TensorFlow": [
        ONEDNN,
        CUDA,
        CLEANUP,
        "E0000 00:00:1795302448.814144  935012 cuda_platform.cc:52] failed call to cuInit: "
        "INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
        "2024-03-30 14:29:56.12: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:282] "
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "2023-12-05 09:29:18.697209: E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:"
        "9342] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN "
        "when one has already been registered",
        "I0000 00:00:1795342098.614312   28896 cpu_feature_guard.cc:227] This TensorFlow binary "
        "is optimized to use available CPU instructions in performance-critical operations.",
        f"To enable the following instructions: {FEATURES}, in other operations, rebuild "
        "TensorFlow with the appropriate compiler flags.",
        "I0000 00:00:1795342100.942714   28896 service.cc:153] XLA service 0x55b9095ddfe0 "
        "initialized for platform Host (this does not guarantee that XLA will be used). Devices:",
        "I0000 00:00:1795342100.942756   28896 service.cc:161]   StreamExecutor [0]: Host, Default "
        "Version (Driver: 0.0.0; Runtime: 0.0.0; Toolkit: 0.0.0; DNN: 0.0.0)",
        "I0000 00:00:1795342101.354080   28896 device_compiler.h:208] Compiled cluster using XLA!  "
        "This line is logged at most once for the lifetime of the process.",
        "W0000 00:00:1795302452.155  935012 local_rendezvous.cc:412] Local rendezvous is aborting "
        "with status: ABORTED: Step -12 cancelled.  Cancelling rendezvous. "
        "[type.googleapis.com/tensorflow.DerivedStatus='']",
        "W0000 00:00:1795302452.155  935012 local_rendezvous.cc:412] Local rendezvous is aborting "
        "with status: CANCELLED: RecvFromRemoteAsync is cancelled.",
        "W0000 00:00:1795302452.155  935012 grpc_worker_service.cc:536] RecvTensor cancelled for "
        "-8312",
        "W0000 00:00:1795302452.155  935012 xplane_to_step_stats.cc:84] GPU trace was not "
        "collected.",
        "W0000 00:00:1795302452.155  935012 dataset.cc:997] Input of GeneratorDatasetOp::Dataset "
        "will not be optimized because the dataset does not implement the AsGraphDefInternal() "
        "method needed to apply optimizations.",
        "I0000 00:00:1795302452.155  935012 mlir_graph_optimization_pass.cc:437] MLIR V1 "
        "optimization pass is not enabled",
        "I0000 00:00:1795302452.155  935012 profiler_session.cc:81] Profiler session collecting "
        "data.",
        "I0000 00:00:1795302452.155  935012 coordination_service.cc:221] Initializing "
        "CoordinationService",
        "I0000 00:00:1795883866.100888    3174 worker.cc:216] Cancellation requested for RunGraph.",
        "W0000 00:00:1795883850.706506    3545 master_session.cc:2166] UNAVAILABLE: "
        "recvmsg:Connection reset by peer",
        "W0000 00:00:1795883866.104884    4030 master_session.cc:2166] UNAVAILABLE: failed to "
        "connect to all addresses; last error: UNKNOWN: ipv4:10.77.0.3:30975: Failed to connect "
        "to remote host: Connection refused",
        "Additional GRPC error information from remote target /job:worker/replica:0/task:1 while "
        "calling /tensorflow.WorkerService/DeleteWorkerSession:",
        ':UNKNOWN:Error received from peer  {grpc_message:"recvmsg:Connection reset by peer", '
        "grpc_status:14}",
        ':UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"failed to connect to '
        "all addresses; last error: UNKNOWN: ipv4:10.77.0.3:30975: Failed to connect to remote "
        'host: Connection refused"}',
        "2025-02-09 09:37:33.337631: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] "
        "TF-TRT Warning: Could not find TensorRT",
        "2025-02-09 09:37:34.496341: I external/local_xla/xla/stream_executor/cuda/cuda_executor"
        ".cc:901] successful NUMA node read from SysFS had negative value (-1), but there must be "
        "at least one NUMA node, so returning NUMA node zero. See more at https://github.com/"
        "torvalds/linux/blob/v6.0/Documentation/ABI/testing/sysfs-bus-pci#L344-L355",
        "2024-10-11 13:14:15.617: I external/local_xla/xla/stream_executor/cuda/cuda_executor.cc"
        ":887] could not open file to read NUMA node: /sys/bus/pci/devices/0000:01:00.0/numa_node",
        "Your kernel may have been built without NUMA support.",
        "2022-03-04 05:06:07.089101: I tensorflow/core/platform/cpu_feature_guard.cc:193] This "
        "TensorFlow binary is optimized with oneAPI Deep Neural Network Library (oneDNN) to use "
        "the following CPU instructions in performance-critical operations:  AVX2 FMA SSE4.1",
        "To enable them in other operations, rebuild TensorFlow with the appropriate compiler "
        "flags.",
        "W0000 00:00:1733170000.123456    4711 computation_placer.cc:177] computation placer "
        "already registered. Please check linkage and avoid linking the same target more than "
        "once.",
        "2024-03-30 14:29:58.668656: I tensorflow/core/framework/local_rendezvous.cc:404] Local "
        "rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
        "2023-05-06 07:08:09.101112: I tensorflow/core/framework/local_rendezvous.cc:421] Local "
        "rendezvous recv item cancelled. Key hash: 17623418273187312",
    ],
    "TensorBoard": [
        "TensorFlow installation not found - running with reduced feature set.",
        "NOTE: Using experimental fast data loading logic. To disable, pass",
        '    "--load_fast=false" and report issues on GitHub. More details:',
        "    https://github.com/tensorflow/tensorboard/issues/4784",
        "Serving TensorBoard on localhost; to expose to the network, use a proxy or pass "
        "--bind_all",
    ],
    "gRPC": [
        "I0000 00:00:1733170000.123456    4711 fork_posix.cc:75] Other threads are currently "
        "calling into gRPC, skipping fork() handlers",
        "I0000 00:00:1733170000.123456    4711 ev_epoll1_linux.cc:123] grpc epoll fd: 58",
    ],
    "JAX": [
        "INFO:2026-11-22 10:14:30,124:jax._src.xla_bridge:849: Unable to initialize backend 'tpu': "
        "INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file: No such "
        "file or directory",
        "I1204 13:13:42.884638 139807170155648 xla_bridge.py:895] Unable to initialize backend "
        "'rocm': module 'jaxlib.xla_extension' has no attribute 'GpuAllocatorConfig'",
        "I0919 21:58:29.120949 139995721590592 xla_bridge.py:350] Unable to initialize backend "
        "'rocm': NOT_FOUND: Could not find registered platform with name: \"rocm\". Available "
        "platform names are: Interpreter CUDA Host",
    ],
}
ALL_REMARKS = [line for lines in REMARKS.values() for line in lines]
