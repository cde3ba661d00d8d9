"""Lines by which a program repeats that it waits for another task are no output."""

from __future__ import annotations

import pytest

from launcher.ids import TaskId
from launcher.session.waiting import awaited_in

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
