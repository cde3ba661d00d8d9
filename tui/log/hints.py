"""Hints: explanations of log lines and signals of a failing cluster, and what to do about them.

The table of signatures holds the messages that people who run ps/worker clusters ask about again
and again. A line knows that a port is taken or that a session waits for a task. Who holds the
port, and why that task does not answer, the run knows: `explain_hint` joins the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import re2

from launcher.frozen import frozen
from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase, TaskState
from tui.log.guesses import guess

PORT_IN_USE = "port in use"
MAX_LINE = 8 * 1024
"""Characters of a line that are looked at: what a person should know stands at its beginning."""


@frozen
class Hint:
    """Meaning of a line. `about` is the other task that the line names, `port` the port."""

    kind: str
    text: str
    about: TaskId | None = None
    port: int | None = None


@frozen
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
    "the program's CUDA and the host's driver do not match: install a newer driver, or hide "
    "the GPU with CUDA_VISIBLE_DEVICES=-1"
)
_PROCESSOR = (
    "an instruction that the processor lacks",
    "the host's processor is too old for this program: TensorFlow's packages need AVX",
)
_PROTOBUF = "the protobuf version of this host does not match the packages that use it: "


# The first that matches counts: the more telling ones stand first.
SIGNATURES: tuple[_Signature, ...] = (
    _sign(
        PORT_IN_USE,
        r"Could not start gRPC server|[Aa]ddress already in use|EADDRINUSE"
        r"|Failed to add (?:any )?port|server socket has failed to (?:listen|bind)",
        "an earlier run or another program uses the port: `tfmux check FILE` names it, and port "
        "`auto` avoids it; or a task of this run does, whose role the program has taken",
    ),
    _sign(
        "waiting for a task",
        r"CreateSession still waiting for response from worker: "
        r"/job:(?P<job>\w+)/replica:\d+/task:(?P<index>\d{1,9})\b",
        "the session begins when this task answers: the task is not up, or its address cannot be "
        "reached from here",
    ),
    _sign(
        "proxy",
        r"(?i)http proxy handshake|proxy.{0,40}(?:refused|failed|returned)|CONNECT.{0,20}\b403\b",
        "a proxy variable (http_proxy, https_proxy) catches the cluster's own traffic: add the "
        "hosts to no_proxy",
    ),
    _sign(
        "cannot connect",
        r"[Ff]ailed to connect to all addresses|failed to connect to remote host"
        r"|Connection refused.*\b(?:grpc|ipv[46]:)|UNAVAILABLE: .*(?:[Cc]onnection|[Ss]ocket)",
        "the other task does not answer: it has ended or not started yet, a firewall is in "
        "between, or its name resolves to another address",
        # A session that is closed, and a part of a message whose first line has this hint.
        unless=r"master_session\.cc:\d+\]|^:UNKNOWN:Error received from peer",
    ),
    _sign(
        "cannot connect",
        r"(?:NCCL|c10d|[Gg]loo|NET/)[^\n]{0,80}[Cc]onnect\b[^\n]{0,80}"
        r"(?:No route to host|Connection refused|Network is unreachable)",
        "the other rank does not answer at that address: a firewall is in between, or another "
        "network interface is needed (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
        unless="retrying",
    ),
    _sign(
        "no checkpoint",
        r"Failed to (?:find any|get) matching files",
        "there is no checkpoint of that name on the host that raised this: a ps reads and writes "
        "on its own disk",
    ),
    _sign(
        "foreign checkpoint",
        r"Restoring from checkpoint failed|Key .+ not found in checkpoint"
        r"|Error\(s\) in loading state_dict|PytorchStreamReader failed|invalid load key, "
        r"|Assign requires shapes of both tensors to match"
        r"|Unsuccessful TensorSliceReader constructor|DataLossError",
        "the checkpoint in the log directory is of another model, or incomplete: use a new log "
        "directory, or --resume only with the same model",
    ),
    _sign(
        "message too large",
        r"Received message larger than max|message larger than max \(",
        "gRPC refuses messages of this size: raise the limit in the program, or send less at once",
    ),
    _sign(
        "GPU out of memory",
        r"CUDA_ERROR_OUT_OF_MEMORY|\b(?:CUDA|HIP|XPU|NPU|MPS)(?: error:| backend)? out of memory"
        r"|torch(?:\.cuda)?\.OutOfMemoryError"
        r"|OOM when allocating tensor.*GPU|failed to allocate .* from device"
        r"|Out of memory error on GPU|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
        r"|cudaErrorMemoryAllocation|cudaMalloc failed: out of memory"
        r"|cupy\.cuda\.memory\.OutOfMemoryError|Allocator \(GPU_\d+_bfc\) ran out of memory",
        "the GPU's memory is full (`nvidia-smi` shows by whom): use a smaller batch, fewer tasks "
        "on this GPU, or TF_FORCE_GPU_ALLOW_GROWTH=true (JAX: XLA_PYTHON_CLIENT_MEM_FRACTION)",
        unless="caller indicates that this is not a failure",
    ),
    _sign(
        "device out of memory",
        r"(?:RESOURCE_EXHAUSTED|Resource exhausted): (?:[^\n]{0,80}: )?"
        r"(?:Out of memory|Failed to allocate|[^\n]{0,60}(?:trying to allocate|allocating) \d)",
        "the memory of the device is full: use a smaller batch, or a smaller "
        "XLA_PYTHON_CLIENT_MEM_FRACTION if tasks share a GPU",
        # A slower algorithm is taken.
        unless="best cudnn convolution algorithm",
    ),
    _sign(
        "shared memory full",
        r"(?:out of|insufficient) shared memory|unable to (?:open|mmap|allocate) shared memory"
        r"|unable to [^\n]{0,40} file </torch_|failed to extend /dev/shm"
        r"|(?:/dev/shm|shmutils\.cc)[^\n]{0,80}No space left|No space left[^\n]{0,80}/dev/shm"
        r"|killed by signal: Bus error",
        "/dev/shm is full: use fewer data loader workers, a larger /dev/shm (`--shm-size` of a "
        "container), or torch.multiprocessing.set_sharing_strategy('file_system')",
        unless="Too many open files",
    ),
    _sign(
        "out of memory",
        r"\bMemoryError\b|std::bad_alloc|[Cc]annot allocate memory|OOM when allocating tensor"
        r"|[Oo]ut of memory: [Kk]ill|DataLoader worker \(pid[^)]*\) is killed by signal: Killed"
        r"|^\S+: line \d+: +\d+ Killed\b|[Oo]om-kill|(?i:oom[ _]kill(?:ed|er| event))"
        r"|_ArrayMemoryError|node running low on memory",
        "the host's memory is full: use a smaller batch, fewer data loader workers, or fewer "
        "tasks on the host that raised this",
    ),
    _sign(
        "too many processes",
        r"can't start new thread|pthread_create (?:failed|returned)|Thread creation failed"
        r"|fork: [^\n]{0,20}Resource temporarily unavailable",
        "the user or the container may start no more processes and threads: use fewer data "
        'loader workers, env = { OMP_NUM_THREADS = "1" }, or a higher `ulimit -u`',
    ),
    _sign(
        "cuDNN",
        r"Loaded runtime CuDNN library|cuDNN failed to initialize|[Cc]ould not create cudnn handle"
        r"|DNN library initialization failed|CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)",
        "cuDNN cannot start: the program needs a newer one (install it, or set LD_LIBRARY_PATH "
        "in `env`), or the GPU's memory is full",
    ),
    _sign(
        "CUDA and driver",
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver"
        r"|no kernel image is available|driver on your system is too old"
        r"|Driver/library version mismatch|kernel version .* does not match DSO version",
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
        "a GPU twice",
        r"Duplicate GPU detected",
        "NCCL allows one rank per GPU: give each rank its own GPU, or use gloo",
    ),
    _sign(
        "no such GPU",
        r"invalid device ordinal|Found no NVIDIA driver|No CUDA GPUs are available"
        r"|Torch not compiled with CUDA enabled|torch\.cuda\.is_available\(\) is False"
        r"|only supported with GPUs, no GPUs found",
        "this task sees fewer GPUs than it asks for, or its package has no CUDA: compare `gpus` "
        "of the host with the task's LOCAL_RANK",
    ),
    _sign(
        "no network interface",
        r"[Nn]o socket interface found|NET/Socket : [Nn]o interface found"
        r"|Unable to find (?:address|interface) for",
        "this host has no network interface of the name in NCCL_SOCKET_IFNAME or "
        "GLOO_SOCKET_IFNAME: `ip addr` lists them",
    ),
    _sign(
        "a collective timed out",
        r"Watchdog caught collective operation timeout|collective operation timeout: WorkNCCL"
        r"|Timed out waiting \d+ms for (?:recv|send) operation|[Hh]eartbeat monitor timed out"
        r"|failed to pass monitoredBarrier|reached monitoredBarrier, but"
        r"|Application timeout caused pair closure|barrier in coordination service has failed"
        r"|DEADLINE_EXCEEDED: Barrier timed out\. Barrier_id: [^P\[]",
        "another rank has not reached this operation and is at fault: see what it is doing "
        "(`tfmux stacks`)",
    ),
    _sign(
        "another rank has gone",
        r"[Cc]onnection closed by peer|Read error \[[^]]*\]:\d+|ncclRemoteError"
        r"|distributed service detected fatal errors|stopped sending heartbeats"
        r"|heartbeat timeout(?:\.| exceeded| expired|$)|remote process (?:exited|exiting)"
        r"|Gloo (?:all|broadcast|reduce|gather|scatter|barrier|send|recv)\w* failed|Socket closed"
        r"|failed to recv, got 0 bytes|[Nn]CCL communicator was aborted"
        r"|\bstore->get\([^)]*\) got error|recvValue failed|sendBytes failed"
        r"|[Ff]ailed to send RPC to coordination service",
        "a peer of this rank ended or hung: look for the first failure in its log",
    ),
    _sign(
        "ranks do not meet",
        r"waiting for clients\. \d+/\d+ clients joined|client socket has timed out"
        r"|RendezvousTimeoutError|RendezvousConnectionError|Gloo connectFullMesh failed"
        r"|RuntimeError: Socket Timeout|DistStoreError|DistNetworkError|PjRT_Client_Connect"
        r"|connect\(\) timed out"
        r"|[Tt]imed out initializing process group|store based barrier"
        r"|Barrier timed out\. (?:Barrier_i|I)d: \[Init\]",
        "not all ranks have joined: one has not started, or MASTER_ADDR is another machine for "
        "it (`tfmux check FILE` tests the address from each host)",
    ),
    _sign(
        "NCCL",
        r"\bnccl(?:UnhandledCudaError|SystemError|InternalError|InvalidUsage|InvalidArgument)\b"
        r"|NCCL (?:error in|failure|WARN)\b",
        'env = { NCCL_DEBUG = "INFO" } makes NCCL print the reason',
    ),
    _sign(
        "a name does not resolve",
        r"Name or service not known|[Tt]emporary failure in name resolution|nodename nor servname"
        r"|socket\.gaierror|DNS resolution failed|(?:[Cc]ould not|unable to) resolve host"
        r"|unable to get host address for",
        "this host cannot resolve that name: add it to its /etc/hosts or DNS, or set `address` of "
        "the other host",
    ),
    _sign(
        "no Internet access",
        r"(?:[Cc]ouldn't|[Cc]an't|could not) (?:connect to|reach) ['\"]?https?://"
        r"|Max retries exceeded with url|HTTPSConnectionPool",
        "this host cannot reach that server: download the files here, and copy them with `data`",
    ),
    _sign(
        "CUDA libraries",
        r"lib(?:cudart|cudnn\w*|cublas\w*|nccl|cufft|cusparse|cusolver|nvrtc|cupti|cuda)\.so[.\d]*:"
        r" cannot open shared object|Cannot dlopen some GPU libraries"
        r"|[Cc]ould not load library libcud\w+|undefined symbol: (?:__nv|nccl|cu[bdfs])\w+",
        "CUDA libraries are missing on this host, or have another version than the program needs: "
        "`pip install 'tensorflow[and-cuda]'`, or set LD_LIBRARY_PATH in `env`",
    ),
    _sign(
        "system libraries",
        r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found"
        r"|(?:Import|OS)Error: [^\n]*cannot open shared object"
        r"|error while loading shared libraries",
        "this host lacks a library, or its system is too old for the package: use another Python "
        "or environment there, or set LD_LIBRARY_PATH in `env`",
    ),
    _sign(
        "protobuf",
        r"Descriptors cannot (?:not )?be created directly",
        _PROTOBUF + "`pip install 'protobuf<3.21'` there, or newer packages",
    ),
    _sign(
        "protobuf",
        r"'MessageFactory' object has no attribute 'GetPrototype'",
        _PROTOBUF + "`pip install 'protobuf<5'` there, or newer packages",
    ),
    _sign(
        "protobuf",
        r"cannot import name '(?:builder|runtime_version)' from 'google\.protobuf",
        _PROTOBUF + "`pip install -U protobuf` there",
    ),
    _sign(
        _PROCESSOR[0],
        r"instructions, but these aren't available on your machine|built using AVX instructions"
        r"|(?:^|\d )Illegal instruction\b",
        _PROCESSOR[1],
    ),
    _sign(
        "CUDA after a fork",
        r"Cannot re-initialize CUDA in forked subprocess",
        "the program used the GPU before it forked: start its processes with 'spawn', or use the "
        "GPU only afterwards",
    ),
    _sign(
        "ranks",
        r"environment variable (?:MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE) expected, but not set"
        r"|unrecognized arguments: --local[-_]rank",
        'framework = "torch" sets MASTER_ADDR, RANK, WORLD_SIZE and LOCAL_RANK: start the script '
        "without torch.distributed.launch, and let it read these variables",
    ),
    _sign(
        "CUDA error",
        r"CUDA error: (?:an illegal memory access|device-side assert|misaligned|unspecified)"
        r"|\.cu:\d+: [^\n]{0,200}Assertion",
        'env = { CUDA_LAUNCH_BLOCKING = "1" } makes the traceback end where the fault is',
    ),
    _sign(
        "too many open files",
        r"Too many open files|\bEMFILE:|received 0 items of ancdata",
        'raise the limit of open files with `setup = "ulimit -n 65536"`, or use fewer data loader '
        "workers",
    ),
    _sign(
        "Keras 3",
        r"convert a value \(PerReplica:|Keras 3 only supports|not supported (?:in|by|when using) "
        r"(?:the )?[`'\"]?Keras 3|Only instances of .?keras\.Layer.? can be added"
        r"|filename must end in .?\.weights\.h5|not recognized: \{'(?:lr|decay)'"
        r"|Could not interpret optimizer identifier: <keras",
        "this is for legacy Keras: `pip install tf_keras` on each host, and "
        'env = { TF_USE_LEGACY_KERAS = "1" }',
    ),
    _sign(
        "Python 2",
        r"Missing parentheses in call to 'print'"
        r"|name '(?:xrange|unicode|raw_input|reduce|basestring|long|unichr)' is not defined"
        r"|TabError: inconsistent use|multiple exception types must be parenthesized"
        r"|has no attribute '(?:iteritems|itervalues|has_key)'"
        r"|No module named '(?:cPickle|urllib2|ConfigParser|StringIO|Queue|Tkinter|commands)'",
        "this program is for Python 2: `2to3 -w FILE` converts it",
    ),
    _sign(
        "NumPy",
        r"module 'numpy' has no attribute '(?:float|int|bool|object|str|long|complex|unicode)'"
        r"|np\.(?:float|int|bool|object)_?` was (?:a deprecated|removed)"
        r"|compiled using NumPy 1\.x cannot be run|numpy\.dtype size changed[^\n]{0,80}got 88",
        "this program is for an older NumPy: write float for np.float, or `pip install "
        "'numpy<1.24'` (for compiled modules 'numpy<2') in a separate environment",
    ),
    _sign(
        "no more slots",
        r"not enough slots available in the system",
        "mpirun counts slots itself: add `--oversubscribe`, or slots=N to its host file",
    ),
    _sign(
        "mpirun as root",
        r"mpirun has detected an attempt to run as root",
        "add `--allow-run-as-root`, or log in as another user (`ssh` of the host)",
    ),
    _sign(
        "TensorFlow 1",
        r"module ['\"]tensorflow(?:\._api\.v2\.(?:train|nn|layers|summary|logging))?['\"] has "
        r"no attribute|No module named ['\"]tensorflow\.(?:contrib|examples)\b"
        r"|is not compatible with eager execution|The Session graph is empty",
        "`python -m trainer tf1 SCRIPT …` runs a program for TensorFlow 1 unchanged; in a cluster "
        'file: command = ["{python}", "{trainer}", "tf1", "SCRIPT", …]',
    ),
    _sign(
        "no such module",
        r"ModuleNotFoundError: No module named ['\"](?P<name>[\w.]+)['\"]",
        "the host's Python has no {name}: install it there, set `python` of the host, or copy "
        "the module with `workdir` (`tfmux check FILE` names files left out)",
    ),
    _sign(
        "NaN",
        r"NanLossDuringTrainingError|Model diverged with loss = NaN|Minimum loss scale reached"
        r"|(?i:\bloss\b(?:[\"']?\s*(?:[:=(]|is\b|on training batch is)?\s*)(?:tensor\(|\[)?nan\b)",
        "the loss is not a number: try a smaller learning rate or clipped gradients, and check "
        "the data",
    ),
    _sign(
        "SSH",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"
        r"|kex_exchange_identification|Permission denied \((?:publickey|password|gssapi|keyboard)",
        "the program itself cannot log in to another host: check its keys and known_hosts on "
        "this host, and MaxStartups of the other host's sshd",
    ),
    _sign(
        "read-only",
        r"Read-only file system",
        "the host that raised this has mounted the file system of that path read-only: choose "
        "another path",
    ),
    _sign(
        "permission",
        r"PermissionError|[Pp]ermission denied",
        "the user may not do that on the host that raised this: check owner and mode of the path",
    ),
    _sign(
        "disk full",
        r"No space left on device|[Dd]isk quota exceeded|inline_container\.cc[^\n]*unexpected pos",
        "the disk of the host that raised this is full: delete old checkpoints and logs",
    ),
    _sign(
        "no such file",
        r"FileNotFoundError|NOT_FOUND: .*[Nn]o such file",
        "the path does not exist on the host that raised this: only `workdir` and `data` are "
        "copied",
    ),
)

_SIGNALS = {
    "KILL": (
        "not sent by tfmux",
        "most often by the kernel when memory is full (see `dmesg` on the host), or by Slurm or a "
        "container at its limit",
    ),
    "ILL": _PROCESSOR,
    "BUS": (
        "a mapped file became shorter",
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


def _any_of(signatures: tuple[_Signature, ...]) -> Any:
    """One automaton of all patterns: nearly every line matches none, and a flood of lines must not
    be searched once for each of them."""
    patterns = re2.Set.SearchSet()
    for signature in signatures:
        patterns.Add(signature.pattern.pattern)
    patterns.Compile()
    return patterns


_PATTERNS = _any_of(SIGNATURES)
_PORT = re2.compile(r":(\d{2,5})\b")


@guess(otherwise=None)
def hint_for(line: str) -> Hint | None:
    """Meaning of a line; None for the lines that need no words."""
    line = line[:MAX_LINE].encode(errors="replace").decode()  # RE2 knows no lone surrogates
    for number in sorted(_PATTERNS.Match(line) or ()):
        signature = SIGNATURES[number]
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


class TaskContext(NamedTuple):
    """One task: where it runs, its state and exit in words, and what is known of the cause."""

    place: str
    address: str
    state: TaskState
    how: str
    reason: str


TaskContexts = Mapping[TaskId, TaskContext]


def task_contexts(snapshot: Snapshot) -> dict[TaskId, TaskContext]:
    """The tasks by name. Equal as long as nothing changes that an explanation speaks of."""
    over = snapshot.state is RunPhase.ENDED
    return {
        # How a task was ended with its run says nothing of why another once waited for it.
        task.id: TaskContext(
            f"{task.id} @{task.host}",
            task.address,
            task.state,
            "" if over else task.exit_text,
            task.reason,
        )
        for task in snapshot.tasks
    }


@guess(otherwise="")
def known_cause(hint: Hint, task: TaskId | None, tasks: TaskContexts) -> str:
    """Cause that the run knows of a hint in the log of `task`; empty when it knows none."""
    if hint.about is not None:
        return _waited_for(hint.about, tasks)
    own = tasks.get(task) if task is not None else None
    if hint.kind == PORT_IN_USE and own is not None:
        return own.reason
    return ""


def explain_hint(hint: Hint, task: TaskId | None, tasks: TaskContexts) -> str:
    """A hint in words, with what the run knows in place of what may be in general."""
    return f"{hint.kind}: {known_cause(hint, task, tasks) or hint.text}"


def _waited_for(about: TaskId, tasks: TaskContexts) -> str:
    other = tasks.get(about)
    if other is None:
        return f"{about} is not a task of this run: the program was given another cluster"
    if not other.how:
        return ""
    why = f" ({other.reason})" if other.reason else ""
    if other.state.up:
        return (
            f"{other.place} is {other.how}: it will answer soon, or {other.address} cannot be "
            "reached from here"
        )
    if other.state.ended:
        return f"{other.place} has ended: {other.how}{why}"
    return f"{other.place} is {other.how}{why}: the session begins when it answers"
