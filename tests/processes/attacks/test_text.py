"""Text from elsewhere, in logs and names: nothing in it is acted on, and what it costs delays
nothing."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from launcher.client.run_client import RunClient
from launcher.cluster.read import loads
from launcher.errors import HostError
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.hosts.ssh import SshConnector
from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.plan.run_plan import SshTarget
from launcher.printable import PICTURES, pictured, printable, without_escapes
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import HostState, Outcome, RunPhase
from launcher.store.metric_lines import Extractor
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import budget, examples, soak, soon
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.fakes import ScriptedRun
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import confirmed, ready
from tests.support.screens import until
from tests.support.worst_text import WORST_TEXTS, WorstText
from tests.testbed import inprocess, proc
from tests.testbed.inprocess import SshServer
from tui.app import TfmuxApp
from tui.log.document import Line
from tui.log.hints import SIGNATURES, hint_for
from tui.log.query import ERRORS, Chunk, Query
from tui.log.rows import RowOptions, highlight, render_line, wrap
from tui.log.sanitise import parse_spans, plain_text
from tui.outcome import report
from tui.streams import message

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
EVIL = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;title\x1b\\\x1bP+q\x1b\\\x9b31m\x1bc\x08\x0e\x7f\r\n"
    + BIDI
    + "\u200b\u2060\ufeff\xad\u2028\u2029\ud800\U000e0041evil"
)
ACTED_ON = {"Cc", "Cf", "Cs", "Zl", "Zp"}
TEXT = st.text(st.characters(categories=None), max_size=300) | st.lists(
    st.sampled_from([*EVIL, "\x1b[", "\x1b]0;", "\x9d", "m", "A", "[", "1"]), max_size=60
).map("".join)
fixed = examples(100)


def acted_on(text: str, allowed: str = "") -> list[str]:
    """The characters of a text that a terminal would act on."""
    found = (c for c in text if unicodedata.category(c) in ACTED_ON)
    return [c for c in found if c not in allowed]


@given(TEXT)
@fixed
def test_printable_text_does_nothing(text: str) -> None:
    """Given any text, when it is made printable, then it is one line of a bounded length in which a
    terminal acts on nothing; text that was printable before is as it was."""
    shown = printable(text)
    assert not acted_on(shown) and shown.isprintable() and len(printable(text, 20)) <= 20
    assert printable(shown) == shown
    if text.isprintable() and len(text) < 2000:
        assert shown == text
    str(HostError("h", text)).encode()


@given(TEXT)
@fixed
def test_pictured_text_does_nothing_and_hides_nothing(text: str) -> None:
    """Given any text, when it is pictured, then a terminal acts on nothing in it, and each
    character has its picture, but for the one with which emoji are joined."""
    shown = pictured(text)
    assert not acted_on(shown, "\t")
    assert len(shown) == len(text) - text.count("\u200d")
    shown.encode()


def test_no_character_that_a_terminal_acts_on_is_missing() -> None:
    """Given all characters that this Python's Unicode knows, then each on which a terminal acts has
    a picture."""
    every = map(chr, range(sys.maxunicode + 1))
    assert {ord(c) for c in every if unicodedata.category(c) in ACTED_ON} <= PICTURES.keys()


@given(TEXT)
@fixed
def test_text_for_programs_has_no_escapes(text: str) -> None:
    """Given any text, when it goes to a pipe, then it holds no control character but tabs and
    newlines; text without control characters is as it was."""
    plain = without_escapes(text)
    assert all(unicodedata.category(c) != "Cc" or c in "\t\n" for c in plain)
    if all(unicodedata.category(c) != "Cc" for c in text):
        assert plain == text


@given(st.binary(max_size=300) | TEXT.map(lambda text: text.encode(errors="replace")))
@fixed
def test_a_line_of_a_log_in_a_pane_does_nothing(raw: bytes) -> None:
    """Given any bytes as a log's line, when a pane shows them, then they hold no control character
    and no change of direction."""
    shown = plain_text(raw.replace(b"\n", b""))
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not set(shown) & set(BIDI)


def test_worst_text_costs_no_time() -> None:
    """Given unfinished sequences by the hundred thousand, when they are made printable and
    pictured, then that ends, as each is looked at once, and a terminal acts on nothing in it."""
    for piece in ("\x1b]0;", "\x1b[", "\x1b[0;", "\x9d", "\x1bP\x1b", "\u202e"):
        text = piece * 200_000
        assert not acted_on(printable(text, len(text))) and not acted_on(pictured(text))


# --- what a server asks --------------------------------------------------------------------------


async def test_a_prompt_of_a_server_is_shown_without_escapes(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a server whose keyboard-interactive questions hold escapes, when the launcher logs in,
    then the person is asked these questions without anything on which a terminal acts."""
    ssh_server.password = "secret"
    challenge = (EVIL.replace("\ud800", ""),) * 2 + ("", [(EVIL.replace("\ud800", ""), False)])
    monkeypatch.setattr(inprocess._Login, "get_kbdint_challenge", lambda *_: challenge)
    monkeypatch.setattr(inprocess._Login, "password_auth_supported", lambda _: False)
    asked: list[AuthPrompt] = []

    async def ask(question: AuthPrompt) -> str | None:
        asked.append(question)
        return None

    logins = SshConnector(ask)
    target = SshTarget(
        ssh_server.user, "127.0.0.1", ssh_server.port, known_hosts=str(ssh_server.known_hosts)
    )
    with pytest.raises(HostError):
        await logins.open("far", target, "true")
    await logins.aclose()
    assert asked and all("evil" in question.text for question in asked)
    assert not [c for question in asked for c in acted_on(question.text)]


# --- what tasks wrote ----------------------------------------------------------------------------

SCRIPT = f"import os; os.write(1, {EVIL.encode(errors='replace')!r} + b'\\nend\\n')"
CLUSTER = cluster_text(
    {"worker": {"tasks": 1, "ready": "started"}}, "escapes", command=python_task(SCRIPT), workdir=""
)
RAW = EVIL.encode(errors="replace") + b"\nend\n"


def on_terminal(*words: str) -> bytes:
    """What a command writes to stdout when that is a terminal, which changes nothing of it."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "raw"], stdin=theirs, check=True)
    argv = [sys.executable, "-m", "tui.main", *words]
    process = subprocess.Popen(argv, stdout=theirs, stderr=subprocess.PIPE, cwd=REPOSITORY)
    os.close(theirs)
    said = b""
    try:
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the other side has been closed
                break
            if not data:
                break
            said += data
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 0, errors
    return said


def piped(*words: str) -> bytes:
    """What a command writes to a pipe."""
    argv = [sys.executable, "-m", "tui.main", *words]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE, cwd=REPOSITORY)
    assert done.returncode == 0, done
    return done.stdout


def test_logs_on_a_terminal_are_pictures(tmp_path: Path) -> None:
    """Given a task that writes escapes, when a headless run and `logs` show them on a terminal,
    then they are pictures; with `--raw`, or in a pipe, one task's log is the bytes."""
    file = write(tmp_path, CLUSTER)
    shown = on_terminal("up", str(file), "--headless").decode()
    assert "worker:0 | " in shown and "evil" in shown and "␦" in shown and "end" in shown
    assert not acted_on(shown, "\n\t")
    (folder,) = RunFolder.all()
    assert (folder.path / "worker-0.log").read_bytes() == RAW
    for words in (("worker:0",), ()):
        shown = on_terminal("logs", folder.run_id, *words).decode()
        assert "evil" in shown and "␦" in shown and "end" in shown
        assert not acted_on(shown, "\n\t")
        assert ("worker:0 | " in shown) == (not words)
    assert "ZXZpbA==" not in on_terminal("logs", folder.run_id, "worker:0").decode()
    assert on_terminal("logs", folder.run_id, "worker:0", "--raw") == RAW
    assert piped("logs", folder.run_id, "worker:0") == RAW
    assert piped("logs", folder.run_id, "--raw") == b"".join(
        b"worker:0 | " + line + b"\n" for line in RAW.split(b"\n")[:-1]
    )
    lines = piped("logs", folder.run_id).decode()
    assert "\x1b" not in lines and "evil" in lines and "\u202e" in lines


# --- what was stored, and what is said at the end ------------------------------------------------


def test_the_last_words_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Given a snapshot with escapes in all its texts, as one from the disk may be, when its report
    and a message are printed, then a terminal acts on nothing in them."""
    text = 'name = "x"\n[jobs.worker]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["x"]\n'
    run = RunStateMachine(loads(text, "x.toml", tmp_path), "x-1", 1.0)
    task = TaskId("worker", 0)
    seen = run.snapshot()
    host = replace(seen.hosts[0], state=HostState.REFUSED, reason=EVIL, destination=EVIL)
    receipt = Receipt((HostReceipt(EVIL, 1, (Survivor(5, EVIL, EVIL),), True, None, 0.1),))
    seen = replace(
        seen,
        run_id=EVIL,
        notes=(EVIL,),
        hosts=(host,),
        tasks=tuple(replace(view, attempt=1, reason=EVIL) for view in seen.tasks),
        first_failure=Failure(task, EVIL, EVIL, 1.0, tail=(EVIL,)),
        receipt=receipt,
        outcome=Outcome.DETACHED,
    )
    said = report(seen, tmp_path)
    assert "evil" in said and not acted_on(said, "\n")
    message(EVIL)
    assert not acted_on(capsys.readouterr().err, "\n")


WORST = {
    "digits": "'loss: ' + '1' * 30_000",
    "overstrikes": "'a' * 32_000 + '\\b' * 32_000",
    "steps": "'step 1 ' * 9_000",
    "bars": "'1/1 ' * 8_000",
}
"""Each is printed fifty times a second, `steps` without a newline."""

LOG_SCRIPT = """
import sys, time
print('11 is ready', flush=True)
while True:
    sys.stdout.write(TEXT + END)
    sys.stdout.flush()
    time.sleep(0.02)
"""
NESTED = r"(?P<step>(\d+)+)+x|((a+)+)+b|(\S+\s*)+$"
SECONDS = 10.0
"""For the whole end; it took half a minute where text delayed it."""


def cluster(folder: Path, pattern: str) -> Path:
    """A file with a task for each of the texts."""
    lines = ['name = "texts"']
    for job, text in WORST.items():
        end = "''" if job == "steps" else "'\\n'"
        script = LOG_SCRIPT.replace("TEXT", text).replace("END", end)
        lines += [
            f"[jobs.{job}]",
            'tasks = ["localhost:auto"]',
            f"command = {json.dumps(list(python_task(script)))}",
            "ready = { log = '(1+)+ is ready$' }",
        ]
    lines += ["[run]", 'workdir = ""', "grace = 1", "log_limit = 200000000"]
    if pattern:
        lines += ["[metrics]", f"pattern = '{pattern}'"]
    return write(folder, "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        ("", "ctrl-c"),
        (NESTED, "kill"),
        *(soak("", means) for means in ("term", "kill")),
        *(soak(NESTED, means) for means in ("ctrl-c", "term")),
    ],
)
def test_the_worst_text_does_not_delay_the_end(tmp_path: Path, pattern: str, means: str) -> None:
    """Given tasks that write what costs expressions most, when Ctrl-C, TERM or `tfmux kill --all`
    comes, then all were ready, and the receipt is clean (in a soak within ten seconds)."""
    file = cluster(tmp_path, pattern)
    with Up("up", str(file), "--json") as up:
        ready(up, *(f"{job}:0" for job in WORST))
        for job in WORST:
            up.log(f"{job}:0", "1" if job != "overstrikes" else "a" * 100)
        began = time.monotonic()
        if means == "kill":
            done = command.run("kill", "--all")
            assert done.returncode == 0, done.stderr
        else:
            number = signal.SIGINT if means == "ctrl-c" else signal.SIGTERM
            up.process.send_signal(number)
        receipt = up.wait_for(lambda e: e["event"] == "receipt", "a receipt")
        assert receipt["clean"]
        told = time.monotonic() - began
        code = up.wait()
        ended = time.monotonic() - began
    print(f"{means}: receipt after {told:.2f} s, end after {ended:.2f} s")
    assert code == (143 if means == "term" else 130), up.transcript()
    assert confirmed(up)
    assert soon(ended, SECONDS)


@pytest.mark.parametrize("text", WORST.values(), ids=WORST)
@pytest.mark.parametrize("pattern", [None, NESTED])
def test_metrics_cost_no_seconds(text: str, pattern: str | None) -> None:
    """Given a hundred chunks of one of the worst texts, when metrics are read from them with the
    usual pattern or a nested one, then that takes less than five seconds of a processor's time."""
    line = eval(text).encode() + b"\n"
    extractor = Extractor(pattern)
    began = time.process_time()
    for number in range(100):
        list(extractor.feed(line, float(number)))
    assert time.process_time() - began < 5.0


HOURS_OF_COUNTING = 1 << 42
"""Bytes of a log with holes: counting them takes hours."""
A_WHILE = 24 << 14
"""Bytes of an index for 1 GiB, which takes some seconds to count."""
WORDS = """
import os, time
print('begun', flush=True)
while not os.path.exists(END):
    time.sleep(0.02)
raise SystemExit(3)
"""


def abandoned(tmp_path: Path) -> RunFolder:
    """A run with a huge log and no index, whose launcher has died; its task goes on until there is
    a file `end`."""
    words = json.dumps(list(python_task(WORDS.replace("END", repr(str(tmp_path / "end"))))))
    lines = ['name = "huge"', "[jobs.worker]", 'tasks = ["localhost:auto"]', f"command = {words}"]
    lines += ["ready = { log = '^begun' }", "[run]", 'workdir = ""', "grace = 1"]
    lines += ['on_disconnect = "keep"']
    with Up("up", str(write(tmp_path, "\n".join(lines) + "\n")), "--json") as up:
        up.state("worker:0", "ready")
        run_id = up.run_id
        up.kill_launcher()
    log = runs_home() / run_id / "worker-0.log"
    wait_until(lambda: RunFolder(log.parent).launcher_pid() is None, "the launcher is dead")
    log.with_suffix(".idx").unlink(missing_ok=True)
    os.truncate(log, HOURS_OF_COUNTING)
    return RunFolder(log.parent)


def end(folder: RunFolder) -> None:
    """Ends what a failed test has left."""
    for process in proc.scan(having=folder.run_id):
        proc.signal_process(process, signal.SIGKILL)


def test_a_kill_does_not_wait_for_the_count_of_a_log(tmp_path: Path) -> None:
    """Given an abandoned run with a log that takes hours to count, when `tfmux kill` is called,
    then receipt and end come long before the log is counted."""
    folder = abandoned(tmp_path)
    try:
        done = run("kill", folder.run_id)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no process is left" in done.stdout
        counted = (folder.path / "worker-0.idx").stat().st_size
        assert counted < HOURS_OF_COUNTING >> 12, "the whole log had been counted"
    finally:
        end(folder)


def test_a_long_count_is_no_disk_that_does_not_answer(tmp_path: Path) -> None:
    """Given an abandoned run that is taken up while its huge log is counted, when its task exits,
    then the run ends with that failure, and no note speaks of a disk that does not answer. The disk
    of a busy machine may be silent for a second itself, but not in each of three runs."""
    for number in range(3):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        if not notes_of_disks(folder):
            return
    raise AssertionError("each time, the count was taken for a disk that does not answer")


def notes_of_disks(tmp_path: Path) -> list[str]:
    """What a run says of the disk while its log is counted."""
    folder = abandoned(tmp_path)
    index = folder.path / "worker-0.idx"
    try:
        client = RunClient.attach(folder)
        wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "it runs")
        wait_until(lambda: index.exists() and index.stat().st_size > A_WHILE, "it is being counted")
        (tmp_path / "end").touch()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        client.close()
        assert ended.outcome is Outcome.FAILED and ended.clean
        assert ended.first_failure is not None and ended.first_failure.how == "exit 3"
        return [note for note in ended.notes if "disk" in note or "not stored" in note]
    finally:
        end(folder)


SMALL, LARGE = budget((4 * 1024, 32 * 1024), (8 * 1024, 64 * 1024))
MARGIN = 4
"""Times what the eightfold text may cost beyond eight times the small one's cost."""
LEAST = 0.002
"""Seconds: what costs less is too quick to be compared."""

QUERIES = [Query(text) for text in ("a", "1|a", "a.*z|a", r"\w+\d", "(a|aa)+$", "[^x]*y")]


def draw(line: bytes) -> None:
    """Draws all of a line, with and without wrapping, and marks hits in it."""
    whole = parse_spans(line)
    for part in (*wrap(whole, 100), highlight(whole, QUERIES[1])):
        assert sum(cell_len(span.text) for span in part) >= 0


def draw_row(line: bytes) -> None:
    """Draws a line as a pane does."""
    for query in (None, *QUERIES):
        render_line(
            Line(0, 0, line), RowOptions(hide_prefix=True, query=query), {}, TaskId("ps", 0)
        )


def explain(line: bytes) -> None:
    """Asks each signature whether it explains the whole line."""
    text = line.decode("utf-8", "replace")
    for signature in SIGNATURES:
        signature.pattern.search(text)
        if signature.unless is not None:
            signature.unless.search(text)
    hint_for(text)


def search(line: bytes) -> None:
    """Searches the line for errors and for what a person may style for."""
    for query in (ERRORS, *QUERIES):
        query.lines(Chunk(0, line, len(line)))


def seconds(act: Callable[[bytes], None], line: bytes) -> float:
    """The time on a processor of one try."""
    begin = time.thread_time()
    act(line)
    return time.thread_time() - begin


@pytest.mark.parametrize("act", [draw, draw_row, explain, search])
def test_the_cost_grows_with_the_text_alone(act: Callable[[bytes], None]) -> None:
    """Given each of the worst texts, when eight times as much of it is drawn, explained or
    searched, then that costs about eight times as much, and not the square."""
    dear = [f"{text}: {found}" for text in WORST_TEXTS if (found := too_dear(text, act))]
    assert not dear, "\n".join(dear)


def too_dear(text: WorstText, act: Callable[[bytes], None]) -> str:
    """What eight times a text costs, if that is too much in each of some tries."""
    for _ in range(10):  # a busy machine makes single tries dear, and not all of them
        small = max(LEAST, seconds(act, text.make(SMALL)))
        large = seconds(act, text.make(LARGE))
        if large < small * (LARGE / SMALL) * MARGIN:
            return ""
    return f"{large:.3f} s for eight times what took {small:.3f} s"


async def test_f9_is_answered_whatever_is_drawn(tmp_path: Path) -> None:
    """Given a screen full of each of the worst texts, one after the other, when F9 is pressed, then
    it is answered, and drawing takes less than four seconds of a processor's time."""
    run = ScriptedRun(tmp_path, workers=3)
    app = TfmuxApp(run)
    log = run.logs.open(TaskId("worker", 0))
    try:
        async with app.run_test(size=(200, 50)) as pilot:
            await pilot.press("w")  # lines are not wrapped: as many as there are rows are drawn
            for text in WORST_TEXTS:
                for size in (1000, LARGE):
                    data = (text.make(size) + b"\n") * 16
                    log.append(log.size, data, time.time())
                begin = time.thread_time()
                asked = len(run.asked)
                await pilot.press("f9")
                await until(pilot, lambda before=asked: len(run.asked) > before)  # type: ignore[misc]
                assert time.thread_time() - begin < 4, f"{text} holds up the screen"
    finally:
        run.logs.close()
