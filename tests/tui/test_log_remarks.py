"""Which lines are remarks, and what folds of them show and hide."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Attempt
from launcher.run.states import RunPhase, TaskState
from launcher.store.hints import hint_for
from launcher.store.logs import LogFile, LogStore
from launcher.store.metrics import Extractor
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.log import folds
from tui.log.document import Document, Line
from tui.log.errors import ERRORS
from tui.log.folds import BLOCK
from tui.log.log_views import LogViews
from tui.log.remarks import LONGEST, count_text, remark_source
from tui.log.scan import Chunk
from tui.log.view import LogView
from tui.log.viewport import Item, Viewport
from tui.screens.run.screen import RunScreen
from tui.widgets.log_pane import LogPane

TASK = TaskId("worker", 0)
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
SHOWN = [
    "",
    "worker:0 listens on localhost:16364",
    "After 100 training steps (100 global steps), loss on training batch is 0.2507.",
    "E0000 00:00:1795302448.814144  935012 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    "2023-12-05 09:29:18.697209: E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:9342] "
    "Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one "
    "has already been registered",
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


def test_no_remark_is_an_error_a_hint_or_a_metric() -> None:
    """The rules for errors, hints and metrics know none of the remarks."""
    for line in ALL_REMARKS:
        data = line.encode() + b"\n"
        assert ERRORS.lines(Chunk(0, data, len(data))) == ([], 0), line
        assert hint_for(line) is None, line
        assert not list(Extractor().feed(data, 0.0)), line


def test_no_severity_but_information_and_known_warnings() -> None:
    """The same words as an error or a fatal error are shown."""
    headed = re.compile(r"^(|\d{4}-\S+ \S+: )[IW](?=\d{4} | )")
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
            for text in hostile:
                assert remark_source(text.encode()) is None, text
    assert remark_source(b"I" * (LONGEST + 1)) is None


def test_sources_are_named() -> None:
    """Numbers in groups, one or several sources; absl alone only."""
    assert count_text(1, ["gRPC"]) == "1 remark of gRPC"
    assert count_text(1000, ["absl", "TensorFlow"]) == "1 000 remarks of TensorFlow"
    assert count_text(2, ["absl"]) == "2 remarks of absl"
    assert count_text(3, ["TensorFlow", "JAX"]) == "3 remarks of JAX and TensorFlow"


# folds


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    """An empty log."""
    file = LogFile(tmp_path / "worker-0.log")
    yield file
    file.close()


def append(log: LogFile, *lines: str, end: str = "\n") -> None:
    log.append(log.size, ("\n".join(lines) + end).encode(), 1.0)


def view_of(log: LogFile) -> LogView:
    document = Document(TASK, log)
    document.refresh()
    return LogView(TASK, document)


def fold_at(view: LogView, number: int) -> tuple[int, int, str] | None:
    fold = view.fold_at(number)
    return None if fold is None else (fold.first, fold.end, fold.text)


def test_consecutive_remarks_are_one_fold(log: LogFile) -> None:
    """Found from each of their lines; other lines are in none."""
    append(log, "begin", ABSL, ONEDNN, CUDA, "ready", CLEANUP, "end")
    view = view_of(log)
    assert [fold_at(view, n) for n in range(7)] == [
        None,
        *[(1, 4, "+ 3 remarks of TensorFlow")] * 3,
        None,
        (5, 6, "+ 1 remark of TensorFlow"),
        None,
    ]


def test_a_fold_grows(log: LogFile) -> None:
    """With what is written behind it; a line without newline may still become an error."""
    append(log, ABSL, ONEDNN)
    view = view_of(log)
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    append(log, CUDA, end="")
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert view.fold_at(2) is None
    append(log, " ERROR", CUDA)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert view.fold_at(2) is None
    assert fold_at(view, 3) == (3, 4, "+ 1 remark of TensorFlow")


def test_an_empty_line_between_remarks_is_folded_with_them(log: LogFile) -> None:
    """One, and only between remarks: TensorBoard prints its remarks so."""
    first, *note = REMARKS["TensorBoard"][:4]
    append(log, "", first, "", *note, "", "TensorBoard 2.21.0 at http://…", CUDA, "", "", CUDA)
    view = view_of(log)
    expected = [None, *[(1, 6, "+ 4 remarks of TensorBoard")] * 5, None, None]
    one = "+ 1 remark of TensorFlow"
    assert [fold_at(view, n) for n in range(12)] == [
        *expected,
        (8, 9, one),
        None,
        None,
        (11, 12, one),
    ]


def test_an_empty_line_waits_for_the_line_behind_it(log: LogFile) -> None:
    """It is shown until a remark has come there whole."""
    append(log, CUDA, "", CUDA[:20], end="")
    view = view_of(log)
    assert fold_at(view, 0) == (0, 1, "+ 1 remark of TensorFlow")
    assert view.fold_at(1) is None
    append(log, CUDA[20:], "go", "on")
    view.lines.refresh()
    assert [fold_at(view, n) for n in range(3)] == [(0, 3, "+ 2 remarks of TensorFlow")] * 3


def test_the_last_hit_is_shown(log: LogFile) -> None:
    """Where the cursor is nothing is folded; elsewhere everything."""
    append(log, ABSL, ONEDNN, "ready", CUDA, "go")
    view = view_of(log)
    view.cursor = 1
    assert [fold_at(view, n) for n in (0, 1)] == [None, None]
    assert fold_at(view, 3) == (3, 4, "+ 1 remark of TensorFlow")
    view.cursor = None
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")


def test_a_selection_takes_a_fold_whole(log: LogFile) -> None:
    """From its first line to its last, whichever of them was meant."""
    append(log, "begin", ABSL, ONEDNN, CUDA, "ready")
    view = view_of(log)
    view.selection = (2, 2)
    assert list(view.selected_lines) == [1, 2, 3]
    view.selection = (4, 1)
    assert list(view.selected_lines) == [1, 2, 3, 4]


def test_a_separator_ends_a_fold(tmp_path: Path) -> None:
    """Remarks of two attempts are two folds: where the second begins stays in sight."""
    run = ScriptedRun(tmp_path, ps=0, workers=1)
    run.write("worker:0", f"{ABSL}\n{ONEDNN}\n".encode())
    start = run.logs.open(TASK).size
    run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nready\n".encode())
    views = LogViews(run.logs, run.snapshot())
    view = views.of(TASK)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 5, "+ 5 remarks of TensorFlow")
    run.task("worker:0", attempts=(Attempt(1, 0, 1.0), Attempt(2, start, 2.0)))
    views.update(run.snapshot())
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert fold_at(view, 4) == (2, 5, "+ 3 remarks of TensorFlow")
    assert view.separators(2)
    run.logs.close()


def test_merged_logs_fold_over_tasks_and_forget_nothing(tmp_path: Path) -> None:
    """What comes late into the middle of a merged log is never hidden by a fold that was found
    before it came."""
    logs = LogStore(tmp_path)
    run = ScriptedRun(tmp_path, ps=1, workers=1)
    ps, worker = logs.open(TaskId("ps", 0)), logs.open(TASK)
    for at in (1.0, 3.0):
        ps.append(ps.size, f"{ONEDNN}\n".encode(), at)
    ps.append(ps.size, b"first\nlast\n", 4.0)
    views = LogViews(logs, run.snapshot())
    view = views.of(None)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    worker.append(0, f"{CUDA}\n".encode(), 2.0)
    view.lines.refresh()
    assert fold_at(view, 1) == (0, 3, "+ 3 remarks of TensorFlow")
    fold = view.fold_at(0)
    assert fold and fold.task is None
    worker.append(worker.size, b"ERROR disk full\n", 2.1)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert view.fold_at(2) is None and view.lines.line(2).data == b"ERROR disk full"
    fold = view.fold_at(3)
    assert fold and fold.task == TaskId("ps", 0)
    logs.close()
    run.logs.close()


def test_whatever_comes_whenever_folds_are_as_if_found_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs that grow piece by piece, late ones into the middle: no fold outlives its lines, none
    hides another line, and neighbours agree."""
    monkeypatch.setattr(folds, "BLOCK", 8)
    rng = random.Random(5)
    run = ScriptedRun(tmp_path, ps=1, workers=2)
    tasks = [task.id for task in run.snapshot().tasks]
    times = dict.fromkeys(tasks, 0.0)
    views = LogViews(run.logs, run.snapshot())
    for _ in range(400):
        task = rng.choice(tasks)
        times[task] += rng.choice([0.1, 0.3, 1.0])
        log = run.logs.open(task)
        lines = rng.choices([ABSL, CUDA, "", "trains"], [4, 4, 2, 1], k=rng.randrange(1, 4))
        text = "\n".join(lines) + rng.choice(["\n", "\n", ""])
        log.append(log.size, text.encode(), times[task])
        for which in (None, task):
            view = views.of(which)
            view.lines.refresh()
            anew = LogView(which, view.lines)
            first = max(0, view.lines.count - 60)
            for number in rng.sample(range(first, view.lines.count), view.lines.count - first):
                fold = view.fold_at(number)
                assert fold == anew.fold_at(number)
                if fold is None:
                    continue
                assert fold.first <= number < fold.end
                data = view.lines.line(number).data
                assert remark_source(data) or data == b""
                assert view.fold_at(fold.first) == view.fold_at(fold.end - 1) == fold
    run.logs.close()


class Counting(Document):
    """A document that counts the lines which are asked for."""

    asked = 0

    def line(self, number: int) -> Line:
        self.asked += 1
        return super().line(number)


def test_a_million_remarks_are_not_looked_through(log: LogFile) -> None:
    """A page looks at its own lines and one block a row, wherever in the log it is."""
    append(log, *[CUDA] * 100_000)
    for _ in range(9):
        log.append(log.size, f"{CUDA}\n".encode() * 100_000, 1.0)
    document = Counting(TASK, log)
    document.refresh()
    view = LogView(TASK, document)

    def item_at(number: int) -> Item:
        fold = view.fold_at(number)
        return Item(fold.first, fold.end) if fold else Item(number, number + 1)

    port = Viewport()
    port.update(document.count, 20, item_at)
    assert document.count == 1_000_000
    assert len(port.rows()) == 20
    assert document.asked <= 21 * (BLOCK + 2)
    document.asked = 0
    port.rows()
    assert document.asked <= 2 * BLOCK  # only the fold at the end, which may still grow
    port.show(500_000)
    port.rows()
    assert document.asked <= 60 * BLOCK


# the place in a log with folds


def folded(*pairs: tuple[int, int]) -> Viewport:
    """A viewport in which some lines are folded: each pair from, and up to."""

    def item_at(line: int) -> Item:
        first, end = next((p for p in pairs if p[0] <= line < p[1]), (line, line + 1))
        return Item(first, end)

    return Viewport(item_at=item_at)


def test_a_fold_is_one_row() -> None:
    """Up, down and at the end; its first line stands for it."""
    port = folded((3, 90), (95, 98))
    port.update(100, 5)
    assert port.rows() == [(93, 0), (94, 0), (95, 0), (98, 0), (99, 0)]
    port.scroll(-4)
    assert port.rows() == [(3, 0), (90, 0), (91, 0), (92, 0), (93, 0)]
    port.scroll(-1)
    assert port.rows()[0] == (2, 0)
    port.home()
    assert port.rows() == [(0, 0), (1, 0), (2, 0), (3, 0), (90, 0)]
    port.scroll(7)
    assert port.following


def test_the_top_is_never_inside_a_fold() -> None:
    """Lines that become one fold under a paused view are shown as that."""
    port = Viewport()
    port.update(100, 5)
    port.scroll(-50)
    port.update(100, 5, folded((10, 60)).item_at)
    assert port.rows()[:2] == [(10, 0), (60, 0)]


def test_a_selection_moves_over_folds() -> None:
    """A fold is one step, and the view follows the selection without end."""
    port = folded((3, 90))
    port.update(200, 5)
    port.home()
    assert port.items_from(2, 1) == 3
    assert port.items_from(3, 1) == 90
    assert port.items_from(90, -1) == 89
    assert port.items_from(89, -1) == 2
    assert (port.items_from(5, 200), port.items_from(5, -200)) == (199, 0)
    for line in (150, 40, 0, 199):
        port.pause()
        port.reveal(line)
        first = port.item_at(line).first
        assert first in [row[0] for row in port.rows()]


# on the screen


async def test_the_pane_shows_the_training(run: ScriptedRun) -> None:
    """Remarks are one dim line; the key shows them, and folds them again."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        run.all_tasks(state=TaskState.RUNNING)
        run.change(state=RunPhase.RUNNING)
        run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        text = "\n".join(screen_text(app))
        assert "oneDNN" not in text and "f unfold" in text
        await pilot.press("f")
        await shows(pilot, "oneDNN custom operations")
        await shows(pilot, "f fold")
        assert "remarks of" not in "\n".join(screen_text(app)).replace("TensorFlow's remarks", "")
        await pilot.press("f")
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("m")
        await shows(pilot, "worker:0 + 3 remarks of TensorFlow")


async def test_search_finds_inside_a_fold(run: ScriptedRun) -> None:
    """The fold with the hit is opened, and closed again when the search is left."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        run.write("ps:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n{CLEANUP}\nend\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("slash", *"cuda drivers", "enter")
        await shows(pilot, "1 of 1")
        await shows(pilot, "Could not find cuda drivers")
        assert any("+ 1 remark of TensorFlow" in row for row in screen_text(app))
        await pilot.press("escape")
        await shows(pilot, "+ 3 remarks of TensorFlow")


async def test_a_filter_folds_nothing(run: ScriptedRun) -> None:
    """It shows each line that it lets through."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        run.write("ps:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("ampersand", *"cuda", "enter")
        await shows(pilot, "Could not find cuda drivers")
        await pilot.press("ampersand", *["backspace"] * 4, "enter")
        await shows(pilot, "+ 3 remarks of TensorFlow")


async def test_copying_and_counting_know_all_lines(run: ScriptedRun) -> None:
    """`y` copies the lines of folds in sight, and what has come since pausing is counted in
    lines."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        run.write("ps:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard != "")
        assert app.clipboard.splitlines() == [ABSL, ONEDNN, CUDA, "listens"]
        screen = app.screen
        assert isinstance(screen, RunScreen) and screen.area.pane
        screen.area.pane.move(Viewport.pause)
        run.write("ps:0", f"{CLEANUP}\n".encode() * 5)
        await shows(pilot, "↓ 5 new")
        await shows(pilot, "+ 5 remarks of TensorFlow")  # there is room for it


async def test_a_line_that_comes_late_stands_in_its_place(run: ScriptedRun) -> None:
    """In the merged log, where the lines behind it get other numbers."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.press("m")
        run.write("ps:0", b"first\n", 10.0)
        run.write("ps:0", b"third\nfourth\nfifth\n", 12.0)
        await shows(pilot, "fifth")
        run.write("worker:0", b"second\n", 11.0)
        await shows(pilot, "second")
        words = [word for row in screen_text(app) for word in row.split()]
        order = ["first", "second", "third", "fourth", "fifth"]
        assert [word for word in words if word in order] == order
