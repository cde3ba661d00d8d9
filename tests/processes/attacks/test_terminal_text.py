"""Text from elsewhere on its way to a terminal: nothing in it is acted on.

What a terminal acts on is judged here by character class: controls (Cc), format characters
(Cf: bidirectional, zero-width), lone surrogates (Cs), line and paragraph separators (Zl, Zp).
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.read import loads
from launcher.errors import HostError
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.hosts.ssh import SshConnector
from launcher.ids import TaskId
from launcher.plan.run_plan import SshTarget
from launcher.printable import PICTURES, pictured, printable, without_escapes
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import HostState, Outcome
from launcher.store.runs import RunFolder
from tests.support.budgets import examples
from tests.support.cluster_texts import cluster_text
from tests.support.command import python_task, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.testbed import inprocess
from tests.testbed.inprocess import SshServer
from tui.log.sanitise import plain_text
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
