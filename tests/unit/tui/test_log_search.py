"""Search, filter and the merged log, against a plain reading of the same bytes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.ids import TaskId
from launcher.store.logs import LogFile
from tests.support.patience import wait_until
from tui.log.document import Document
from tui.log.finder import Filtered, Finder, Hits, Scanner
from tui.log.merged import Merged, StampedLines, _Sections
from tui.log.query import Chunk, Query, prefilter

W0, W1, PS = TaskId("worker", 0), TaskId("worker", 1), TaskId("ps", 0)


def random_log(path: Path, rng: random.Random, lines: int) -> tuple[LogFile, list[str]]:
    """A log written in chunks of any size; every line is its own."""
    file = LogFile(path)
    words = ["loss", "Loss", "step", "error", "naïve"]
    texts = [f"{i} {rng.choice(words)} {'x' * rng.choice([0, 10, 300])}" for i in range(lines)]
    data = "".join(f"{text}\n" for text in texts).encode()
    at, now = 0, 1000.0
    while at < len(data):
        take = rng.choice([10, 1000, 100_000])
        file.append(at, data[at : at + take], now)
        at += take
        now += rng.choice([0.0, 0.2, 1.0])
    return file, texts


@pytest.mark.parametrize(
    "text", ["loss", "Loss", "step x+$", "naïve", "(unclosed", "^7", "x" * 200]
)
def test_search_finds_what_a_reading_finds(tmp_path: Path, text: str) -> None:
    """Lines and count equal a plain look at each line; small letters find both cases, a broken
    expression is taken as text; the nearest hit is known too."""
    file, texts = random_log(tmp_path / "a.log", random.Random(1), 5000)
    query = Query(text)
    flags = 0 if text == "Loss" else re.IGNORECASE
    plain = re.compile(re.escape(text) if text == "(unclosed" else text, flags)
    hits = [i for i, line in enumerate(texts) if plain.search(line)]
    near = 3000
    search = Hits(file, query, near=near)
    scanner = Scanner("search", [search.scan()], 0.01)
    try:
        wait_until(lambda: search.done, "all is counted")
        assert list(search.lines) == hits
        assert search.count == sum(len(plain.findall(line)) for line in texts)
        assert search.near_hit == max((hit for hit in hits if hit <= near), default=None)
        if hits:
            assert search.after(hits[-1]) == hits[0]
            assert search.before(hits[0]) == hits[-1]
    finally:
        scanner.close()
        file.close()


class Stamped:
    """A log of one line in each quarter of a second."""

    def __init__(self, task: TaskId, times: list[float]) -> None:
        self.task, self.times, self.grown = task, times, True

    @property
    def count(self) -> int:
        return len(self.times)

    def refresh(self) -> bool:
        grown, self.grown = self.grown, False
        return grown

    def stamps(self, first: int) -> list[tuple[int, float]]:
        return list(enumerate(self.times))[first:]

    def origin(self, number: int) -> tuple[TaskId, int]:
        return self.task, number

    def locate(self, task: TaskId, line: int) -> int | None:
        return line if task == self.task and line < self.count else None


def test_long_logs_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A night's marks are sorted, not put in one by one; a line of a log that has been silent for
    long does not count all lines since."""
    old = Stamped(PS, [0.0])
    logs = [Stamped(task, [i / 4 + task.index / 8 for i in range(5000)]) for task in (W0, W1)]
    looked = Counter[str]()

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(_Sections, name)

        def call(*args: Any) -> Any:
            looked[name] += 1
            return function(*args)

        return call

    for name in ("key", "last"):
        monkeypatch.setattr(_Sections, name, counted(name))
    merged = Merged({log.task: cast(StampedLines, log) for log in (old, *logs)})
    merged.refresh()
    assert merged.count == 10_001 and max(looked.values()) < 10_100
    assert merged.origin(0) == (PS, 0) and merged.origin(10_000) == (W1, 4999)
    looked.clear()
    old.times.append(2000.0)
    old.grown = True
    merged.refresh()
    assert merged.origin(10_001) == (PS, 1) and max(looked.values()) < 10
    assert merged.locate(PS, 0) == 0 and merged.locate(PS, 1) == 10_001


def test_scans_rest_at_the_ends_of_their_logs() -> None:
    """While one log is read, those that are through are not asked each time: with thousands that
    grow now and then, the thread that searches would take a whole core. They are not forgotten
    either."""
    asked = {"read": 0, "through": 0}

    def scan(name: str, advances: bool) -> Iterator[bool]:
        while True:
            asked[name] += 1
            yield advances

    scanner = Scanner("scan", [scan("read", True), scan("through", False)], 1000.0)
    wait_until(lambda: asked["through"] >= 10, "it is asked again")
    scanner.close()
    assert asked["read"] > 50 * asked["through"]


def test_search_goes_on_as_the_log_grows(tmp_path: Path) -> None:
    """Lines that come after the search was through are found too, and colours inside a word
    do not hide it."""
    file = LogFile(tmp_path / "a.log")
    file.append(0, b"needle\nhay\n", 1.0)
    search = Hits(file, Query("needle"))
    scanner = Scanner("search", [search.scan()], 0.01)
    wait_until(lambda: search.done, "all is counted")
    file.append(file.size, b"hay\nnee\x1b[31mdle\n", 2.0)
    wait_until(lambda: list(search.lines) == [0, 3], "the new line is found")
    scanner.close()
    search = Hits(file, Query("ne+dle$"))
    scanner = Scanner("search", [search.scan()], 0.01)
    wait_until(lambda: list(search.lines) == [0, 3], "the new line is found")
    scanner.close()
    file.close()


@pytest.mark.parametrize("text", ["loss", "!loss", "nothing has this"])
def test_filter_shows_what_passes(tmp_path: Path, text: str) -> None:
    """The filtered lines are those that hit, with `!` those that do not, in their order; each
    is found by its number in the log."""
    file, texts = random_log(tmp_path / "a.log", random.Random(2), 3000)
    passing = [i for i, line in enumerate(texts) if ("loss" in line.lower()) != (text[0] == "!")]
    if "nothing" in text:
        passing = []
    filtered = Filtered(Document(W0, file), text)
    scanner = Scanner("filter", [filtered.scan()], 0.01)
    try:
        through = "all lines are through"
        wait_until(lambda: not filtered.refresh() and filtered._taken == len(texts), through)
        assert filtered.count == len(passing)
        for at in range(0, len(passing), 97):
            line = filtered.line(at)
            assert line.number == passing[at]
            assert line.data.decode() == texts[passing[at]]
            assert filtered.locate(W0, passing[at]) == at
    finally:
        scanner.close()
        file.close()


def test_merged_is_all_logs_in_order_of_receipt(tmp_path: Path) -> None:
    """While logs grow, the merged log has each line once, each log's lines in their order, and
    times never go back by more than the marks' quarter of a second."""
    rng = random.Random(4)
    files = {task: LogFile(tmp_path / f"{task.stem}.log") for task in (PS, W0, W1)}
    merged = Merged({task: Document(task, file) for task, file in files.items()})
    written: dict[TaskId, list[str]] = {task: [] for task in files}
    now = 1000.0
    for _ in range(400):
        task = rng.choice(list(files))
        now += rng.choice([0.0, 0.01, 0.3, 2.0])
        lines = [f"{task} {len(written[task]) + i}" for i in range(rng.choice([1, 3, 200]))]
        written[task] += lines
        data = "".join(f"{line}\n" for line in lines).encode()
        files[task].append(files[task].size, data, now)
        if rng.random() < 0.3:
            merged.refresh()
    merged.refresh()
    assert merged.count == sum(map(len, written.values()))
    seen: dict[TaskId, list[str]] = {task: [] for task in files}
    last = 0.0
    for number in range(merged.count):
        if number % 50 and number < merged.count - 100:
            line = merged.line(number)
            seen[line.task or PS].append(line.data.decode())
            continue
        line = merged.line(number)
        assert line.task and line.time
        seen[line.task].append(line.data.decode())
        assert line.time >= last - 0.25
        last = max(last, line.time)
        task, own = merged.origin(number)
        assert (task, own) == (line.task, line.number)
        assert merged.locate(task, own) == number
        assert merged.last_at(task, number) == own
    assert seen == written
    for file in files.values():
        file.close()


def test_hits_in_the_merged_log_in_its_order(tmp_path: Path) -> None:
    """Next and previous walk all hits of all tasks in merged order and around the end."""
    files = {task: LogFile(tmp_path / f"{task.stem}.log") for task in (PS, W0)}
    for i in range(300):
        task = (PS, W0)[i % 3 == 0]
        files[task].append(files[task].size, b"line %d%s\n" % (i, b" hit" * (i % 7 == 0)), float(i))
    merged = Merged({task: Document(task, file) for task, file in files.items()})
    merged.refresh()
    hits = [n for n in range(merged.count) if re.search(rb"hit", merged.line(n).data)]
    finder = Finder(merged, Query("hit"), merged.count - 1)
    wait_until(lambda: finder.done, "all is counted")
    assert finder.follow() == hits[-1]
    walked = []
    for _ in hits:
        finder.step(1)
        walked.append(finder.follow())
    assert walked == hits
    finder.step(1)
    assert finder.follow() == hits[0]
    assert finder.neighbour(hits[5], forward=False) == hits[4]
    assert finder.neighbour(hits[5] - 1, forward=False) == hits[4]
    for _ in range(5):
        finder.step(1)
    assert finder.follow() == hits[5] and finder.place() == (6, len(hits))
    finder.close()
    patient = Finder(merged, Query("hit"))
    assert not patient.waiting and patient.place()[0] == 0
    patient.step(-1)
    wait_until(lambda: patient.done, "all is counted")
    assert patient.follow() == hits[-1] and not patient.waiting
    patient.close()
    for file in files.values():
        file.close()


def test_a_far_hit_is_shown_before_all_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking back ends after a while; then the first hit that the count comes to is shown."""
    monkeypatch.setattr("tui.log.finder.NEAR_BYTES", 1 << 20)
    file = LogFile(tmp_path / "a.log")
    hay = b"hay\n" * 100_000
    file.append(0, b"needle one\n" + hay * 10 + b"needle two\n" + hay * 10, 1.0)
    search = Hits(file, Query("needle"), near=file.newlines - 1)
    scanner = Scanner("search", [search.scan()], 0.01)
    try:
        wait_until(lambda: search.near_hit is not None, "a hit is found")
        assert search.near_hit == 0
        wait_until(lambda: search.done, "all is counted")
        assert list(search.lines) == [0, 1_000_001]
        assert search.scanned == file.size
    finally:
        scanner.close()
        file.close()


@pytest.mark.parametrize("text", ["(x+x+)+y", "(a|a)*$b", "x(?=y)"])
def test_no_expression_holds_up_the_screen(tmp_path: Path, text: str) -> None:
    """What would keep other engines busy for years is through at once, and what this one does
    not know is looked for as text."""
    file = LogFile(tmp_path / "a.log")
    file.append(0, b"x" * 100_000 + b"\n" + b"a" * 100_000 + b"\nhas x(?=y) in it\n", 1.0)
    search = Hits(file, Query(text))
    scanner = Scanner("search", [search.scan()], 0.01)
    try:
        wait_until(lambda: search.done, "all is counted")
        assert list(search.lines) == ([2] if text == "x(?=y)" else [])
    finally:
        scanner.close()
        file.close()


# The prefilter never holds back what hits: expressions on coloured lines, found at random.


ATOMS = (
    "a",
    "b",
    "1",
    ".",
    "[ab]",
    "[^a]",
    "[^]a]",
    r"\d",
    r"\w",
    r"\s",
    r"\.",
    "é",
    " ",
    "m",
    r"\b",
)
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(lambda parts: "".join(parts), st.lists(inner, min_size=1, max_size=4)),
        st.builds(lambda one, two: f"(?:{one}|{two})", inner, inner),
        st.builds(
            lambda one, how: f"({one}){how}",
            inner,
            st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "+?"]),
        ),
        st.builds(lambda one: f"^{one}$", inner),
    ),
    max_leaves=8,
)
texts = st.lists(
    st.sampled_from(["a", "b", "1", "m", ".", " ", "é", "\n", "\x1b[31m", "\x1b[0m", "\x1b[1;3m"]),
    max_size=30,
).map("".join)


@given(pattern=patterns, text=texts)
@example(pattern="(a){2}b", text="a\x1b[31mab")
@example(pattern="m", text="\x1b[31m")
@example(pattern="mm", text="\x1b[0mmm")
@example(pattern="^a.*b$", text="\x1b[31ma\x1b[0m b\x1b[0m")
def test_with_and_without_the_sieve_the_same_is_found(pattern: str, text: str) -> None:
    """As if the colours had never been there."""
    data = text.encode()
    bare = re.sub(rb"\x1b\[[0-9;]*m", b"", data)
    assert Query(pattern).lines(Chunk(7, data, 0)) == Query(pattern).lines(Chunk(7, bare, 0))


@pytest.mark.parametrize(
    "pattern",
    ["(?i)a", "(?P<x>a)", r"\x41", r"\pL", "a[[:alpha:]]", "a{,2}", "a]", "[a", r"\Qa\E", "a{2"],
)
def test_what_is_not_understood_has_no_prefilter(pattern: str) -> None:
    """Such an expression is slower on coloured lines, never wrong."""
    assert prefilter(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["loss.*0\\.1", "a|b", "(warn|error): .+", r"\berror\b", "[x-z]{2,3}?$"]
)
def test_what_people_type_has_one(pattern: str) -> None:
    """And it is an expression."""
    coarse = prefilter(pattern)
    assert coarse is not None
    re2.compile(coarse)


def test_a_sieve_holds_back_what_cannot_hit() -> None:
    """Else it would be of no use."""
    query = Query("n[e]+dle")
    assert query._prefilter is not None
    assert query._prefilter.search(b"a \x1b[31mne\x1b[0medle")
    assert not query._prefilter.search(b"a \x1b[31mnoodle")
