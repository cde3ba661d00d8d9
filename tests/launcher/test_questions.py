"""What a launcher without a screen asks, answered by whoever looks at its run. A real door."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from launcher.hosts.credentials import Question, QuestionKind
from launcher.ids import new_run_id
from launcher.session.questions import Answers, Questions
from launcher.session.wishes import Watch, open_door, wish
from tests.command import DEADLINE
from tests.tui.fakes import ScriptedRun

PASSWORD = Question("tf1", "Password of root", True, QuestionKind.PASSWORD)
CODE = Question("tf2", "One-time code", False)


class Viewer:
    """Looks at a run from a thread, as a page does; `typed` answers what it is asked."""

    def __init__(self, run_id: str, typed: str | None) -> None:
        self.run_id = run_id
        self.typed = typed
        self.seen: list[Question] = []
        self.dropped: list[Question] = []
        self._watch = Watch(run_id)
        self._answers = Answers(self._ask, self._say)
        self._closed = False

    async def __aenter__(self) -> Viewer:
        self._task = asyncio.create_task(asyncio.to_thread(self._look))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        await self._task

    def _look(self) -> None:
        while not self._closed:
            self._watch.next(0.05)
            self._answers.show(self._watch.questions)
            if not self._watch.connected:
                time.sleep(0.02)
        self._watch.close()
        self._answers.close()

    async def _ask(self, question: Question) -> str | None:
        self.seen.append(question)
        try:
            while self.typed is None:  # noqa: ASYNC110 a person thinks
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.dropped.append(question)
            raise
        return self.typed

    def _say(self, ident: int, text: str | None) -> None:
        assert wish(self.run_id, wish="answer", id=ident, text=text)


@asynccontextmanager
async def asking(run: ScriptedRun, questions: Questions) -> AsyncIterator[str]:
    """A launcher's door; the run's id."""
    run_id = new_run_id("asked")
    async with open_door(run_id, run, questions):
        yield run_id


async def until(condition: Callable[[], object]) -> None:
    """Waits for something that has no event."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    """Any run: the door shows it, too."""
    return ScriptedRun(tmp_path)


async def test_the_first_answer_counts_and_the_others_are_asked_no_more(run: ScriptedRun) -> None:
    """Two look; one of them types."""
    questions = Questions()
    async with (
        asking(run, questions) as run_id,
        Viewer(run_id, None) as silent,
        Viewer(run_id, None) as busy,
    ):
        answer = asyncio.create_task(questions(PASSWORD))
        await until(lambda: silent.seen and busy.seen)
        busy.typed = "s3cret ü"
        assert await answer == "s3cret ü"
        assert questions.open == ()
        await until(lambda: silent.dropped == [PASSWORD])
        assert silent.seen == busy.seen == [PASSWORD]


async def test_several_hosts_ask_at_once_and_one_who_comes_late_is_asked(run: ScriptedRun) -> None:
    """Each question gets its own answer; a question outlasts the page that showed it."""
    questions = Questions(alone=DEADLINE)
    async with asking(run, questions) as run_id:
        answers = [asyncio.create_task(questions(each)) for each in (PASSWORD, CODE)]
        async with Viewer(run_id, None) as first:
            await until(lambda: len(first.seen) == 2)
        assert not any(answer.done() for answer in answers)
        async with Viewer(run_id, "123") as second:
            assert await asyncio.gather(*answers) == ["123", "123"]
        assert set(second.seen) == {PASSWORD, CODE}


async def test_when_nobody_looks_nobody_answers(run: ScriptedRun) -> None:
    """The login goes on without an answer, as a headless one does."""
    questions = Questions(alone=0.1)
    async with asking(run, questions):
        assert await questions(PASSWORD) is None
    assert questions.open == ()


async def test_a_refusal_is_an_answer_and_a_login_that_gave_up_asks_no_more(
    run: ScriptedRun,
) -> None:
    """Esc is told; a question that is withdrawn leaves every screen."""
    questions = Questions()
    async with asking(run, questions) as run_id, Viewer(run_id, None) as viewer:
        given_up = asyncio.create_task(questions(PASSWORD))
        await until(lambda: viewer.seen == [PASSWORD])
        given_up.cancel()
        await until(lambda: viewer.dropped == [PASSWORD])
        refused = asyncio.create_task(questions(CODE))
        await until(lambda: questions.open)
        questions.answer(questions.open[0].id + 1, "of another question")
        assert wish(run_id, wish="answer", id=questions.open[0].id, text=None)
        assert await refused is None
