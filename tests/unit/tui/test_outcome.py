"""End of a run in words: on the screen, on stderr, and in the report for a colleague."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.history.run_list import ListedRun
from launcher.ids import TaskId
from launcher.process.hooks import hook_document
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import (
    AllocationView,
    Failure,
    HostReceipt,
    KeptResults,
    Receipt,
    Snapshot,
    Survivor,
    TaskView,
)
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.secret_values import MASK
from launcher.store.runs import RunFolder
from launcher.store.stream import PublicEvent, Summary, plain
from tests.support.fakes import ScriptedRun
from tests.support.patience import PATIENCE
from tui import headless
from tui.failure_report import failure_report
from tui.format import UNCONFIRMED
from tui.outcome import (
    TERMINAL,
    failure_text,
    headline,
    queue_text,
    receipt_lines,
    receipt_text,
    rendered,
    report,
)
from tui.screens.home_rows import run_row
from tui.widgets.header import header_parts

ENDED = Snapshot(
    run_id="mnist-20261120-183002-7f3a",
    name="mnist",
    state=RunPhase.ENDED,
    tasks=(),
    hosts=(),
    started=1000.0,
    ended=1083.0,
    outcome=Outcome.FAILED,
    exit_code=4,
    first_failure=Failure(
        TaskId("worker", 1), "tf3", "exit 1", 1080.0, (TaskId("ps", 0),), ("a\x1b[2Jb", "last")
    ),
    receipt=Receipt(
        (
            HostReceipt("tf1", signalled=3, confirmed=True, seconds=0.2),
            HostReceipt("tf3", 2, (Survivor(4121, "python", "D"),)),
            HostReceipt("host-with-a-long-name", unreachable_until=1200.0),
        )
    ),
)


def test_the_report_is_made_of_what_the_screens_show() -> None:
    """Headline, first failure and receipt, to the word; nothing in it acts on a terminal."""
    said = report(ENDED, Path("/runs/x"))
    for text in (
        headline(ENDED, TERMINAL),
        failure_text(ENDED, TERMINAL, 50),
        receipt_text(ENDED, TERMINAL),
    ):
        assert text.plain in said
    assert "✗ failed after 1:23" in said
    assert "first failure: worker:1 on tf3: exit 1" in said
    assert f"finish with: tfmux kill {ENDED.run_id}" in said
    assert said.endswith("logs: /runs/x") and "\x1b" not in said


def test_a_receipt_has_a_line_for_each_host_that_is_not_clean() -> None:
    """Survivors below theirs; the clean hosts are one line, and the last."""
    assert ENDED.receipt is not None
    _, second, survivor, third, clean_ones = receipt_lines(ENDED)
    assert "not confirmed: 2 processes signalled, 1 left after 0.00 s" in second
    assert survivor.endswith(": pid 4121 (D) python")
    assert second.endswith("; state D: kill again later, or boot it")
    assert ": unreachable" in third
    assert clean_ones == "1 other host: no process is left"
    many = replace(ENDED.receipt.hosts[1], unlisted=2900)
    _, host, _, more = receipt_lines(replace(ENDED, receipt=Receipt((many,))))
    assert "2,901 left after" in host and more.endswith(": and 2,900 more")
    clean = replace(ENDED, receipt=Receipt(ENDED.receipt.hosts[:1]))
    assert receipt_text(clean, TERMINAL).plain == "no process is left, 1 host confirmed\n"


def test_a_receipt_says_why_a_host_is_not_confirmed() -> None:
    """Its agent looked, found nothing, and cannot prove it; nothing of its word acts on a terminal.
    How long the look took is no matter."""
    doubt = "an earlier agent here and its watchdog were killed together\x1b[2J"
    receipt = Receipt((HostReceipt("tf2", signalled=2, doubt=doubt),))
    _, line = receipt_lines(replace(ENDED, receipt=receipt))
    assert line.startswith("tf2: not confirmed: an earlier agent here and its watchdog were")
    assert line.isprintable()


def test_a_doubt_that_only_a_boot_ends_is_told_as_one() -> None:
    """With what can be done; beside a host that may still confirm, that comes first."""
    hosts = [
        HostReceipt("tf2", doubt="an agent died", until_boot=True),
        HostReceipt("tf3", doubt="an agent died", until_boot=True),
        HostReceipt("tf1", confirmed=True),
    ]
    advice, line, *_ = receipt_lines(replace(ENDED, receipt=Receipt(tuple(hosts))))
    assert line == "tf2: not confirmed until it boots: an agent died"
    run = ENDED.run_id
    assert advice.endswith(
        f"; after a boot of tf2, tf3: tfmux kill {run}; "
        f"to remove it from the list: tfmux kill --forget {run}"
    )
    hosts.append(HostReceipt("tf4"))
    advice, *_ = receipt_lines(replace(ENDED, receipt=Receipt(tuple(hosts))))
    assert advice.endswith(f"; finish with: tfmux kill {run}")


def test_an_empty_receipt_of_a_run_that_began_is_no_proof(tmp_path: Path) -> None:
    """No host has confirmed anything: every place says so, and how to finish."""
    task = TaskView(TaskId("worker", 0), "tf1", "a:1", TaskState.KILLED, attempt=1)
    ended = replace(ENDED, tasks=(task,), receipt=Receipt(()), first_failure=None)
    assert receipt_lines(ended)[0].startswith(f"{UNCONFIRMED}; finish with: tfmux kill mnist")
    assert UNCONFIRMED in report(ended, tmp_path)
    assert "no process is left" not in report(ended, tmp_path)
    parts = header_parts(ended, 1100.0, dict(TERMINAL), lambda name: name)
    assert UNCONFIRMED in [part.text for part in parts]
    summary = hook_document("end", ended, tmp_path, 1.0)["receipt"]
    assert summary["clean"] is False
    assert plain(Receipt((), begun=True))["clean"] is False
    waited = replace(ended, tasks=(replace(task, attempt=0),))
    assert receipt_lines(waited) == ["nothing was started"]


@pytest.mark.parametrize(
    "receipt", [None, Receipt(()), Receipt((HostReceipt("tf1", confirmed=True),))]
)
def test_a_preflight_that_failed_says_once_that_nothing_was_started(
    tmp_path: Path, receipt: Receipt | None
) -> None:
    """Also where no host was contacted, and there is no receipt."""
    ended = replace(ENDED, tasks=(), outcome=Outcome.PREFLIGHT, first_failure=None, receipt=receipt)
    assert report(ended, tmp_path).count("nothing was started") == 1


def test_a_receipt_names_the_engine_beside_the_agent() -> None:
    """Whoever confirmed it, and why the other one cannot."""
    hosts = (
        HostReceipt("node0", signalled=4, confirmed=True, seconds=0.03, engine="Slurm agrees"),
        HostReceipt("node1", confirmed=True, by_engine=True, engine="Slurm agrees"),
        HostReceipt("node2", engine="Slurm cannot confirm it: the node is down*"),
    )
    allocation = AllocationView(
        "Slurm", "8123", ended="Slurm 8123 has ended: TIMEOUT", released="Slurm 8123 is released"
    )
    said = report(replace(ENDED, receipt=Receipt(hosts), allocation=allocation), Path("/runs/x"))
    assert "1 other host: no process is left; Slurm agrees\n" in said
    assert "node1: none left, confirmed (no agent; Slurm agrees)" in said
    assert "node2: unreachable; Slurm cannot confirm it: the node is down*" in said
    assert "Slurm 8123 has ended: TIMEOUT" in said and "Slurm 8123 is released" in said


def test_a_run_in_the_queue_says_how_it_stands() -> None:
    """In the header, and without a screen; what an engine says does not act on the terminal."""
    allocation = AllocationView("Slurm", "8123", "PENDING", "Resources", expected=67200.0)
    at = time.strftime("%H:%M", time.localtime(67200.0))
    expected = f"Slurm 8123 PENDING (Resources), expected {at}, waited 0:12"
    assert queue_text(allocation, 988.0, 1000.0) == expected
    queued = replace(
        ENDED, state=RunPhase.QUEUED, allocation=allocation, waiting_since=988.0, first_failure=None
    )
    parts = header_parts(queued, 1000.0, dict(TERMINAL), lambda name: name)
    assert expected in [part.text for part in parts]
    assert queue_text(AllocationView("Slurm"), 0.0, 1.0) == "Slurm requested, waited 0:01"
    assert queue_text(replace(allocation, reason="\x1b[2J"), 0.0, 0.0).isprintable()
    old = replace(allocation, expected=900.0)
    assert queue_text(old, 988.0, 1000.0) == "Slurm 8123 PENDING (Resources), waited 0:12"
    far = queue_text(allocation, 0.0, 67200.0 - 86400.0)
    assert f"expected {time.strftime('%Y-%m-%d', time.localtime(67200.0))} {at}" in far
    killing = replace(queued, state=RunPhase.KILLING, waiting="Slurm 8123 to end")
    killing = replace(killing, allocation=replace(allocation, releasing=True))
    parts = header_parts(killing, 1000.0, dict(TERMINAL), lambda name: name)
    assert "cancelling Slurm 8123: nothing has started" in [p.text for p in parts]
    task = TaskView(TaskId("worker", 0), "node0", "node0:auto", TaskState.KILLED, attempt=1)
    killing = replace(killing, tasks=(task,))
    parts = header_parts(killing, 1000.0, dict(TERMINAL), lambda name: name)
    assert "every agent has answered, waiting for Slurm 8123 to end" in [p.text for p in parts]


def test_an_attempt_says_its_number_and_why_it_began(tmp_path: Path) -> None:
    """While all tasks end for it, while it runs, and when the run is over; the first one does
    not."""
    cause = Failure(TaskId("worker", 1), "tf2", "exit 1", 990.0)
    ending = replace(
        ENDED,
        state=RunPhase.RESTARTING,
        restart_due=True,
        restart_cause=cause,
        most_attempts=4,
        waiting="tf1",
        first_failure=None,
    )
    text = "attempt 2 of 4: worker:1 exit 1 on tf2"
    parts = header_parts(ending, 1000.0, dict(TERMINAL), lambda name: name)
    assert f"{text} — ending all tasks on tf1" in [part.text for part in parts]
    second = replace(ending, state=RunPhase.RUNNING, restart_due=False, attempt=2)
    parts = header_parts(second, 1000.0, dict(TERMINAL), lambda name: name)
    assert text in [part.text for part in parts]
    ended = replace(second, state=RunPhase.ENDED)
    assert f"{text}\n" in report(ended, tmp_path)
    assert Summary.of(second, 0.0).attempt_text == text
    assert "attempt 1" not in report(replace(ENDED, most_attempts=4), tmp_path)


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are the same; NO_COLOR is respected."""
    text = headline(ENDED, TERMINAL)
    assert rendered(text, styled=False) == text.plain
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m✗ failed" in rendered(text, styled=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in rendered(text, styled=True)


@pytest.mark.parametrize(
    ("signal", "reason", "tail", "meaning"),
    [
        ("KILL", "", ("step 1",), "dmesg"),
        (
            "KILL",
            "",
            ("OSError: No space left on device",),
            "the disk of the host that raised this is full",
        ),
        ("KILL", "not ready after 120 s", ("step 1",), ""),
        ("TERM", "", ("step 1",), ""),
    ],
)
def test_a_task_that_a_signal_ended_is_explained(
    signal: str, reason: str, tail: tuple[str, ...], meaning: str
) -> None:
    """What its log says comes first; a signal that the run itself sent needs no explanation."""
    worker = TaskId("worker", 1)
    view = TaskView(worker, "tf3", "tf3:2222", TaskState.FAILED, exit_signal=signal, reason=reason)
    failure = Failure(worker, "tf3", f"killed by {signal}", 1080.0, tail=tail)
    said = failure_text(replace(ENDED, tasks=(view,), first_failure=failure), TERMINAL, 50).plain
    assert meaning in said and ("◂" in said) == bool(meaning)


@pytest.mark.parametrize(
    ("state", "status", "signal", "words"),
    [
        (TaskState.STOPPED, None, "TERM", "stopped, SIGTERM"),
        (TaskState.STOPPED, 143, None, "stopped, SIGTERM"),
        (TaskState.KILLED, 143, None, "killed, SIGTERM"),
        (TaskState.KILLED, 1, None, "exit 1"),
        (TaskState.FAILED, 143, None, "exit 143"),
    ],
)
def test_a_program_that_catches_the_signal_of_the_run_is_stopped_by_it(
    state: TaskState, status: int | None, signal: str | None, words: str
) -> None:
    """As one is that the signal ends; nobody knows which of both a program does."""
    view = TaskView(
        TaskId("worker", 1),
        "tf3",
        "tf3:2222",
        state,
        attempt=1,
        exit_code=status,
        exit_signal=signal,
    )
    said = report(replace(ENDED, tasks=(view,)), Path("/runs/x"))
    assert f"worker:1 on tf3: {words}\n" in said


def test_what_a_failure_means_stands_before_its_last_lines() -> None:
    """The lines may fill a screen; remarks of libraries are not among them."""
    remark = (
        "To enable them in other operations, rebuild TensorFlow with the appropriate compiler "
        "flags."
    )
    failure = Failure(
        TaskId("worker", 1), "tf3", "exit 1", 1080.0, tail=("step 1", remark, "MemoryError")
    )
    said = failure_text(replace(ENDED, first_failure=failure), TERMINAL, 2).plain.splitlines()
    assert said[1].startswith("  ◂ out of memory")
    assert said[2:] == ["  | step 1", "  | MemoryError"]


def test_the_one_line_that_the_cause_quotes_is_not_printed_again() -> None:
    """Given a log of one line, then the cause alone has it where it is quoted there; another line
    stands below the cause."""
    guilty = TaskId("worker", 1)
    for line, shown in (("ValueError: bad batch", []), ("step 1", ["  | step 1"])):
        failure = Failure(guilty, "tf3", "exit 1", 1080.0, tail=(line,))
        verdict = Verdict((guilty,), Kind.RAISED, True, "worker:1 raised ValueError: bad batch", ())
        run = replace(ENDED, verdict=verdict, first_failure=failure)
        said = failure_text(run, TERMINAL, 2).plain.splitlines()
        assert [one for one in said if one.startswith("  | ")] == shown


def test_a_thousand_receipts_are_summed_up() -> None:
    """Hosts that differ come first and in full; the others are one line. The same for tasks."""
    hosts = [HostReceipt(f"h{n}", 8, confirmed=True, seconds=n / 1000) for n in range(1000)]
    lines = receipt_lines(replace(ENDED, receipt=Receipt(tuple(hosts))))
    assert lines == ["no process is left, 1,000 hosts confirmed"]
    hosts[700] = HostReceipt("h700", 8, (Survivor(4121, "python", "D"),))
    hosts[900] = HostReceipt("h900", unreachable_until=1200.0)
    _, survived, survivor, unreachable, rest = receipt_lines(
        replace(ENDED, receipt=Receipt(tuple(hosts)))
    )
    assert survived.startswith("h700: not confirmed: 8 processes signalled, 1 left")
    assert "pid 4121" in survivor and unreachable.startswith("h900: unreachable")
    assert rest == "998 other hosts: no process is left"

    tasks = [
        TaskView(TaskId("worker", n), f"h{n // 8}", "a:1", TaskState.KILLED, attempt=1)
        for n in range(8000)
    ]
    tasks[4321] = replace(tasks[4321], state=TaskState.FAILED, exit_code=1)
    said = report(replace(ENDED, tasks=tuple(tasks)), Path("/runs/x"))
    assert "  worker:4321 on h540: exit 1\n  worker: 7,999 tasks killed\n" in said
    assert said.count("\n") < 20


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_looks_the_same_everywhere(
    tmp_path: Path, outcome: Outcome, clean: bool
) -> None:
    """Mark, word and colour in Home's list, in the header and above the receipt; and the header
    says what the receipt says."""
    assert ENDED.receipt is not None
    receipt = Receipt(ENDED.receipt.hosts[:1]) if clean else ENDED.receipt
    ended = replace(ENDED, outcome=outcome, receipt=receipt, first_failure=None)
    title = headline(ended, TERMINAL)
    first = title.rich.spans[0]
    words = (title.plain[first.start : first.end], first.style)
    parts = header_parts(ended, 1100.0, dict(TERMINAL), lambda name: name)
    assert words in [(part.text, part.style) for part in parts]
    said = receipt_text(ended, TERMINAL).plain.partition("\n")[0].partition(";")[0]
    assert said in [part.text for part in parts]

    seen = Summary(ENDED.run_id, "mine", RunPhase.ENDED, 1000.0, 1083.0, outcome, clean=clean)
    run = ListedRun(seen, RunFolder(tmp_path), asked=True)
    state, *_, note = run_row(run, 1100.0, TERMINAL, 120).make()
    assert (state.plain, f"bold {state.style}") == words
    assert clean or note.plain == said


def test_a_host_is_said_to_act_only_at_a_time_to_come() -> None:
    """The list may be shown long after the run."""
    soon, past = time.time() + 60, time.time() - 1
    hosts = [HostReceipt("a", unreachable_until=soon), HostReceipt("b", unreachable_until=past)]
    _, acts, unreachable = receipt_lines(replace(ENDED, receipt=Receipt(tuple(hosts))))
    assert "a: unreachable; its agent ends the tasks at " in acts
    assert unreachable.strip() == "b: unreachable"


@pytest.mark.parametrize(
    ("kept", "line"),
    [
        (
            KeptResults("a", 1, 5, "/r"),
            "a: 1 new file, 5 B, kept in /r; `tfmux collect r` fetches it",
        ),
        (
            KeptResults("a", 2000, 5, "/r", cut=True),
            "a: at least 2,000 new files (not all were compared), 5 B, kept in /r; "
            "`tfmux collect r` fetches them",
        ),
        (
            KeptResults("a", 2, 5, "/r", problem="not read: /x"),
            "a: at least 2 new files (not read: /x), 5 B, kept in /r; "
            "`tfmux collect r` fetches them",
        ),
        (
            KeptResults("a", problem="no answer in 10 s"),
            "a: tasks may have left files there (no answer in 10 s); they stay "
            "there, and `tfmux collect r` fetches them",
        ),
    ],
)
def test_what_stays_on_a_host_is_one_sentence(kept: KeptResults, line: str, tmp_path: Path) -> None:
    """Also where it is not known, or not all was looked at; of many hosts some are counted."""
    ended = replace(ENDED, run_id="r", results_kept=(kept,))
    assert line in report(ended, tmp_path).splitlines()
    many = tuple(replace(kept, host=f"h{number}") for number in range(40))
    lines = report(replace(ended, results_kept=many), tmp_path).splitlines()
    assert sum("tfmux collect" in line for line in lines) == 16 and "and on 24 more hosts" in lines


# Report of a run for a colleague: what goes into it, and what never does.

CLUSTER = """\
name = "mnist"
[hosts.tf1]
ssh = "anna@10.1.2.3:2222"
identity = "/home/anna/.ssh/work_key"
[hosts.tf2]
ssh = "anna@10.1.2.4"
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = ["tf2:2222", "tf1:2223"]
command = ["sh", "-c", "WANDB_MODE=offline-mode python train.py lr=0.1 --api-key 0123abcd"]
env = { WANDB_KEY = "value-of-the-job", DATASET = "imagenet-22k" }
env_from = ["PASSED_ON"]
[run]
command = ["python", "ps.py"]
env = { PASSPHRASE = "value-of-the-run", PORT = 1 }
framework = "none"
"""
ENVIRON = {"PASSED_ON": "value-passed-on", "GITHUB_TOKEN": "value-of-this-shell", "LANG": "C.UTF-8"}
LINES = [
    "connecting with value-of-the-job and value-of-the-run",
    "PASSED_ON is value-passed-on, and git has value-of-this-shell",
    "cloning https://bob:pa55word@example.org/repo.git",
    "Authorization: Bearer abcdefgh12345678",
    'config: {"hf_token": "qwertyuiop", "db_password": "letmein9"}',
    "using AKIAIOSFODNN7EXAMPLE and hf_abcdefghijklmnopqrstuv",
    "logged in as anna@tf2.example.org",
    "step 1 of 100, lr 0.1",
    "ValueError: bad batch 17",
]
SECRETS = (
    *("value-of-the-job", "value-of-the-run", "value-passed-on", "value-of-this-shell"),
    *("imagenet-22k", "offline-mode", "0123abcd", "pa55word", "bob", "abcdefgh12345678"),
    *("qwertyuiop", "letmein9", "AKIAIOSFODNN7EXAMPLE", "hf_abcdefghijklmnopqrstuv", "anna"),
    *("work_key", "10.1.2.3"),
)


@pytest.fixture
def failed(tmp_path: Path) -> ScriptedRun:
    """A run in which worker:1 has raised, and ps:0 failed first."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "origin").write_bytes(bytes(tmp_path))
    run = ScriptedRun(tmp_path, ps=1, workers=2, hosts=2)
    run.write("worker:1", "\n".join(LINES).encode() + b"\n")
    run.write("ps:0", b"a victim's line\n")
    run.task("worker:1", state=TaskState.FAILED, exit_code=1, attempt=2, step=41)
    guilty = TaskId("worker", 1)
    text = "worker:1 on tf1 raised ValueError: bad batch 17"
    evidence = (Evidence(TaskId("ps", 0), "Connection closed by anna@tf1, token=sesame-open"),)
    run.change(verdict=Verdict((guilty,), Kind.RAISED, True, text, evidence))
    run.end(Outcome.FAILED, 1, failure=Failure(TaskId("ps", 0), "tf1", "exit 2", 1.0))
    return run


def test_a_report_has_what_a_colleague_asks_for(failed: ScriptedRun) -> None:
    """Given a run that has failed, then its report begins with run, outcome and cause, and has the
    evidence, the guilty task's last lines, its command, versions, hosts with tasks, receipt."""
    said = failure_report(failed.snapshot(), failed.logs, ENVIRON).splitlines()
    assert said[0].startswith(f"{failed.snapshot().run_id}: ✗ failed after ")
    assert said[1] == "cause: worker:1 on tf1 raised ValueError: bad batch 17"
    assert said[2].startswith("  · ps:0: Connection closed by ")
    assert "first failure: ps:0 on tf1: exit 2" in said
    assert "worker:1 on tf1: exit 1, attempt 2, step 41; its last lines:" in said
    assert said[said.index("  | step 1 of 100, lr 0.1") + 1] == "  | ValueError: bad batch 17"
    assert not any("a victim's line" in line for line in said)
    command = next(line for line in said if line.startswith("command of worker: "))
    assert "python train.py lr=0.1 --api-key " in command
    assert any(line.startswith("tfmux ") and "Python 3." in line for line in said)
    assert "  tf1: ps:0 pending, worker:1 exit 1" in said
    assert "no process is left, 2 hosts confirmed" in said


def test_a_script_of_a_command_keeps_its_lines(failed: ScriptedRun) -> None:
    """Given a command with a script of several lines, then the report has them as they are, and a
    credential that goes over the end of a line is masked."""
    words = ["python", "-c", "import train\nif True:\n\ttrain.main()\n", "--token", "se\nsame"]
    text = f"[jobs.worker]\ncommand = {json.dumps(words)}\n"
    (failed.logs.folder / "cluster.toml").write_text(text)
    said = failure_report(failed.snapshot(), failed.logs, ENVIRON).splitlines()
    at = said.index("command of worker: python -c 'import train")
    assert said[at + 1] == "if True:" and said[at + 2].endswith("train.main()")
    assert not any("same" in line for line in said[at:])


def test_a_report_has_no_environment_and_no_credential(failed: ScriptedRun) -> None:
    """Given values of variables in the file, of passed on ones and of this shell, credentials in
    lines, command and evidence, accounts and keys of SSH, then none of them is in the report, and
    values too short to be told from numbers leave the numbers alone."""
    said = failure_report(failed.snapshot(), failed.logs, ENVIRON)
    assert [secret for secret in (*SECRETS, "sesame-open") if secret in said] == []
    assert said.count(MASK) >= 14
    assert "step 1 of 100, lr 0.1" in said and "10.1.2.4" not in said
    assert said.isprintable() or set(filter(lambda c: not c.isprintable(), said)) == {"\n"}


def test_a_report_of_a_run_whose_file_cannot_be_read_has_no_lines(failed: ScriptedRun) -> None:
    """Given a run whose file is damaged, so that nobody knows the values of its variables, then the
    cause and the hosts are in its report, and neither lines of the log nor the command."""
    (failed.logs.folder / "cluster.toml").write_text("[broken")
    said = failure_report(failed.snapshot(), failed.logs, ENVIRON)
    assert "cause: worker:1" in said and "  tf1: ps:0 pending" in said
    assert "step 1 of 100" not in said and "command of" not in said
    assert "the run's cluster file cannot be read" in said


@pytest.mark.parametrize(
    "line",
    [
        "worker:1 | step 10 key=value",
        "tokens/s 1200",
        "author: anna",
        "loss = 0.5 @ step 3",
        "tokenizer: bert-base",
        "num_tokens=3000",
    ],
)
def test_lines_without_a_secret_stay_as_they_are(failed: ScriptedRun, line: str) -> None:
    """Given a line that only resembles one with a credential, then the report has it whole."""
    failed.write("worker:1", line.encode() + b"\n")
    assert f"  | {line}\n" in failure_report(failed.snapshot(), failed.logs, ENVIRON)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("train --password 'correct horse battery' --lr 0.1", "--lr 0.1"),
        ('{"password": "correct horse battery", "lr": 0.1}', '"lr": 0.1'),
        ("db_password='correct horse battery", "db_password="),
        ("--pass horse --lr 0.1", "--lr 0.1"),
        ("pwd=horse;host=db", "host=db"),
        ("GET https://x.invalid/y?sv=1&sig=horse%2Fbattery&se=2", "se=2"),
        ("GET https://s3.invalid/y?X-Amz-Signature=horse&X-Amz-Date=1", "X-Amz-Date=1"),
        ("https://hooks.slack.com/services/T00/B00/horse", "hooks.slack.com"),
        ("Authorization: token horse", "Authorization"),
        ("Cookie: session=horse; lang=de", "Cookie"),
        (f"AIza{'horse' * 7}", "  | "),
        (f"horse{'b3BlbnNz' * 8}", "  | "),
    ],
)
def test_credentials_are_masked_whatever_their_form(
    failed: ScriptedRun, line: str, kept: str
) -> None:
    """Given a line with a credential in quotes, in the address of a page, in a header of a request
    or in a key's file, then no word of it is in the report, and what is beside it is."""
    failed.write("worker:1", line.encode() + b"\n")
    (shown,) = failure_report(failed.snapshot(), failed.logs, ENVIRON).split("bad batch 17\n")[-1:]
    assert "horse" not in shown and "battery" not in shown
    assert MASK in shown and kept in shown


# A run without a screen: how often the logs of many tasks are looked through.


class Output:
    """Counts the events that it gets and the looks at all logs."""

    def __init__(self) -> None:
        self.events = self.looks = 0

    def logs(self, *, last: bool = False) -> bool:
        self.looks += 1
        return False

    def record(self, record: PublicEvent) -> None:
        self.events += 1


async def test_logs_are_not_looked_through_for_each_event() -> None:
    """The start of thousands of tasks brings tens of thousands of events at once."""
    quiet = asyncio.Event()

    async def events() -> AsyncIterator[PublicEvent]:
        for _ in range(1000):
            yield {"time": 1.0, "event": "run", "run": "r", "state": "starting"}
        await quiet.wait()

    run: Any = SimpleNamespace(
        events=events, snapshot=lambda: SimpleNamespace(receipt=None, ended=None)
    )
    counting = Output()
    out: Any = counting
    printing = asyncio.create_task(headless._print(run, out))
    async with asyncio.timeout(PATIENCE):
        while counting.events < 1000:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert counting.looks < 100
        while counting.looks < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # and they are when no event comes
        quiet.set()
        await printing
