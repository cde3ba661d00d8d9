"""Tasks that have stalled, found by the lines of their logs and a clock that nobody sets."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from launcher.ids import TaskId
from launcher.process.hang import TICK, QuietRun, Silences, StallDetector
from launcher.reading.waiting import awaited_in
from launcher.run.snapshot import TaskView
from launcher.run.states import Halt, TaskState
from launcher.store.metric_lines import Extractor

WORKER = TaskId("worker", 0)
BAR = "{}:  10%|█    | {}/{} [00:01<00:09, 9.9it/s]"


class Watched:
    """A task whose log grows, and what is found as the seconds go by: times of stalls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pattern: str | None = None) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.wall = 5000.0
        self.view = TaskView(WORKER, "tf1", "tf1:1", TaskState.RUNNING, attempt=1)
        self.detector = StallDetector()
        self.extractor = Extractor(pattern)
        self.found: list[float] = []

    def print(self, line: str) -> None:
        for point in self.extractor.feed(f"{line}\n".encode(), self.wall):
            self.detector.observe(self.view, point.values)

    def wait(self, seconds: float) -> None:
        """Time in which the launcher looks each second."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.wall += TICK
            self.found += self.detector.find({WORKER: self.view}).values()

    def steps(self, count: int, pause: float = 1.0) -> None:
        for step in range(count):
            self.print(f"step {step} loss 0.5")
            self.wait(pause)

    def change(self, state: TaskState, attempt: int = 1) -> None:
        self.view = replace(self.view, state=state, attempt=attempt)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_task_stalls_once_until_it_goes_on(task: Watched) -> None:
    """Given a step a second, when none comes for more than ten seconds, then the task has stalled,
    once; and again after another step."""
    task.steps(3)
    task.wait(9)
    assert task.found == []
    task.wait(100)
    assert task.found == [11.0]
    task.steps(1)
    task.wait(100)
    assert task.found == [11.0, 11.0]


def test_a_slow_task_has_ten_times_its_pace(task: Watched) -> None:
    """Given a step in five seconds, then 50 are no stall."""
    task.steps(4, pause=5)
    task.wait(45)
    assert task.found == []
    task.wait(1)
    assert task.found == [51.0]


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_a_clock_that_is_set_makes_and_hides_no_stall(task: Watched, by: float) -> None:
    """Given a machine whose clock is set while a task goes on, and again while it is silent, then
    its silence alone counts."""
    task.steps(3)
    task.wall += by
    task.steps(3)
    assert task.found == []
    task.wall += by
    task.wait(20)
    assert task.found == [11.0]


def test_time_in_which_nothing_could_be_heard_is_no_silence(task: Watched) -> None:
    """Given a launcher that was stopped for an hour, when it goes on, then the task has as long as
    before."""
    task.steps(3)
    task.wait(5)
    task.now += 3600
    task.wait(4)
    assert task.found == []
    task.wait(10)
    assert task.found == [11.0]


def test_a_lost_host_is_no_stall(task: Watched) -> None:
    """Given a task that goes on where nobody hears it, when its host is back, then it is not called
    stalled for that time."""
    task.steps(3)
    task.change(TaskState.LOST)
    task.wait(100)
    task.change(TaskState.RUNNING)
    task.wait(5)
    assert task.found == []
    task.wait(10)
    assert task.found == [11.0]


@pytest.mark.parametrize("state", [TaskState.EXITED, TaskState.BACKOFF, TaskState.STARTING])
def test_a_task_that_has_ended_or_begins_anew_does_not_stall(
    task: Watched, state: TaskState
) -> None:
    """Given steps of an attempt, then they say nothing of the next one."""
    task.steps(5)
    task.change(state)
    task.wait(100)
    task.change(TaskState.RUNNING, attempt=2)
    task.wait(100)
    task.steps(2)
    task.wait(100)
    assert task.found == []


@pytest.mark.parametrize(
    "line",
    [
        "Map:  10%|█    | {}/9000 [00:01<00:09, 9.9it/s]",
        "Downloading data:  {0}%|█    | {0}.5M/99.9M [00:03<00:06, 1.2MB/s]",
        "model.safetensors: {0}%|███| {0}.1G/9.98G [00:10<01:13, 110MB/s]",
        "Evaluating: 45%|████▌     | {}/500 [00:12<00:14, 18.3it/s]",
        "Validation DataLoader 0:  10%|█    | {}/120 [00:01<00:09, 9.9it/s]",
        "Epoch 1 validation [{}/90] loss 0.7",
        "eval step {} loss 0.7",
    ],
)
def test_work_beside_the_training_is_no_stall(task: Watched, line: str) -> None:
    """Given a training, when it evaluates, downloads or prepares data for minutes and says so, then
    it has not stalled; when that stands still, it has."""
    task.steps(20)
    for number in range(1, 90):
        task.print(line.format(number))
        task.wait(2)
    assert task.found == []
    task.steps(20)
    assert task.found == []
    task.wait(11)
    assert task.found == [11.0]


def test_work_beside_the_training_is_known_with_a_pattern_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a pattern for the metric lines, then bars of an evaluation are no figures, and no
    stall."""
    task = Watched(monkeypatch, r"at (?P<step>\d+)")
    for step in range(5):
        task.print(f"at {step}")
        task.wait(1)
    for number in range(30):
        task.print(BAR.format("Evaluating", number, 100))
        task.wait(1)
    assert task.found == []
    task.wait(11)
    assert task.found == [11.0]


@pytest.mark.parametrize("name", ["Map", "Downloading", "Evaluating", "Frobnicating"])
def test_a_bar_of_data_that_is_through_is_no_stall(task: Watched, name: str) -> None:
    """Given a fast bar before the training, when it has come to its total and nothing is printed
    for minutes, and then a step in half a minute, then nothing has stalled."""
    for number in range(20, 1001, 20):
        task.print(BAR.format(name, number, 1000))
        task.wait(1)
    task.wait(120)
    task.steps(10, pause=30)
    assert task.found == []
    task.wait(271)
    assert task.found == [301.0]


def test_an_epoch_that_is_through_may_stall(task: Watched) -> None:
    """Given a bar with a loss, when nothing follows on its last step, then its task has stalled: it
    trains, and hangs between two epochs."""
    for step in range(1, 21):
        task.print(f"Epoch 1:  10%|█    | {step}/20 [00:01<00:09, 9.9it/s, loss=0.5]")
        task.wait(1)
    task.wait(20)
    assert task.found == [11.0]


def test_a_quiet_run_is_looked_at_seldom() -> None:
    """Given tasks at work that write nothing, then their run is due after five minutes, and again
    after twenty and eighty; a line of any of them, a task that starts, and one alone begin
    anew."""
    views = [
        TaskView(TaskId("worker", index), "tf1", "tf1:1", TaskState.RUNNING, attempt=1)
        for index in range(2)
    ]
    run = QuietRun()

    def due(seconds: int, *tasks: TaskView) -> list[int]:
        return [second for second in range(seconds) if run.is_due(tasks)]

    assert due(5000, *views) == [299, 1199, 4799]
    wrote = replace(views[0], last_output=7.0)
    assert due(301, wrote, views[1]) == [300]
    assert due(500, replace(wrote, state=TaskState.STARTING), views[1]) == []
    assert due(500, wrote) == [] and due(5) == []
    assert due(301, wrote, views[1]) == [300]


def test_a_quiet_run_with_a_suspect_is_looked_at_soon() -> None:
    """Given tasks at work that write nothing, when one's host is lost or one is stopped, then their
    run is due half a minute later, and again after two and eight minutes, also where tasks say that
    they wait, but not after a step; when that is over, time begins anew."""
    views = [
        TaskView(TaskId("worker", index), "tf1", "tf1:1", TaskState.RUNNING, attempt=1)
        for index in range(3)
    ]
    run = QuietRun()

    def due(seconds: int, *tasks: TaskView) -> list[int]:
        return [second for second in range(seconds) if run.is_due(tasks)]

    lost = replace(views[0], state=TaskState.LOST, state_before_loss=TaskState.RUNNING)
    assert due(200, *views) == []
    assert due(500, lost, *views[1:]) == [30, 120, 480]
    assert due(301, *views) == [300]
    assert due(31, replace(views[0], halted=Halt.STOPPED), *views[1:]) == [30]
    assert due(1, *views) == []
    said = [replace(views[1], last_output=float(number)) for number in range(4)]
    assert [due(10, lost, view, views[2]) for view in said] == [[], [], [], [0]]
    assert [due(10, lost, replace(view, step=1), views[2]) for view in said] == [[], [], [], [0]]
    nobody = [replace(view, state=TaskState.LOST) for view in views]
    assert due(500, *nobody) == []


class WatchedSilence:
    """Two tasks of which the first is watched, and what is found at each look."""

    def __init__(self, seconds: float, last: float | None = None) -> None:
        self.first, self.second = (TaskId("worker", index) for index in range(2))
        self.tasks = {
            task: TaskView(task, "tf1", "tf1:1", TaskState.RUNNING, attempt=1)
            for task in (self.first, self.second)
        }
        self.outputs = {} if last is None else {self.first: last}
        self.silences = Silences()
        self.silences.watch(self.first, seconds, last)

    def look(self, times: int) -> tuple[list[int], list[tuple[int, float]]]:
        """The looks at which the task is to be looked at, and has been silent for too long."""
        near, over = [], []
        for number in range(times):
            soon, late = self.silences.find_watched(self.tasks, self.outputs)
            near += [number for _ in soon]
            over += [(number, seconds) for seconds in late.values()]
        return near, over


def test_a_watched_task_is_looked_at_before_its_silence_is_over() -> None:
    """Given a minute, then four seconds before it; and it is told once. Clocks count for nothing:
    each look is a second in which something could be heard."""
    assert WatchedSilence(60).look(200) == ([56], [(60, 60.0)])
    assert WatchedSilence(60, last=5.0).look(200) == ([56], [(60, 60.0)])
    assert WatchedSilence(1).look(9) == ([1], [(1, 1.0)])


def test_output_ends_a_silence_and_begins_another() -> None:
    """Only what the watched task has written itself."""
    watched = WatchedSilence(60)
    assert watched.look(50) == ([], [])
    watched.outputs[watched.second] = 7.0
    assert watched.look(5) == ([], [])
    watched.outputs[watched.first] = 7.0
    assert watched.look(200) == ([56], [(60, 60.0)])


def test_an_end_is_no_silence() -> None:
    """And a task that is watched again has its time anew."""
    watched = WatchedSilence(60)
    assert watched.look(50) == ([], [])
    alive = watched.tasks[watched.first]
    watched.tasks[watched.first] = replace(alive, state=TaskState.EXITED, ended=9.0)
    assert watched.look(200) == ([], [])
    watched.tasks[watched.first] = alive
    watched.silences.watch(watched.first, 10, None)
    assert watched.look(200) == ([6], [(10, 10.0)])


# Lines by which a program repeats that it waits for another task are no output.

LINE = "CreateSession still waiting for response from worker: /job:worker/replica:0/task:{}\n"
OLD = "2017-11-02 19:46:10.896843: I tensorflow/core/distributed_runtime/master.cc:209] "
NEW = "I0000 00:00:1795774153.504247   18352 master.cc:278] "


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (OLD + LINE.format(2), 2),
        (NEW + LINE.format(0), 0),
        (NEW + LINE.format(1) + NEW + LINE.format(2), 1),
        (NEW + LINE.format(1).replace("\n", "\r\n\n"), 1),
    ],
)
def test_it_names_the_task(text: str, index: int) -> None:
    """In the forms of all releases; the first where several are missing."""
    assert awaited_in(text.encode()) == TaskId("worker", index)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "step 5\n",
        NEW + LINE.format(1) + "step 5\n",
        "step 5\n" + NEW + LINE.format(1),
        NEW + LINE.format(1).replace("\n", " after 3 steps\n"),
        NEW + LINE.format("9" * 10),
        NEW + LINE.format(1) * 100,
    ],
)
def test_whatever_else_is_output(text: str) -> None:
    """One other line is enough, and much at once always is."""
    assert awaited_in(text.encode()) is None
