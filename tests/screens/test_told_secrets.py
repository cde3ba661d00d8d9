"""Places that tell, copy or hand on what programs, hosts and files say: none passes a secret on."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.preflight import Check, Finding, Report, Severity
from launcher.preflight.repairs import grouped
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Snapshot, Survivor
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.secret_values import MASK
from tests.support.fakes import ScriptedRun
from tests.support.paths import REPOSITORY
from tests.support.screens import shows
from tui import crash, outcome, streams
from tui.app import TfmuxApp
from tui.commands import check, doctor
from tui.config import Config
from tui.main import main
from tui.notification import Notify, RunNews, sequence
from tui.outcome import TERMINAL
from tui.preflight_view import group_text
from tui.screens.cause_screen import cause_sentence, evidence_rows

TOKEN = "hf_horsebatterystaplehorse"
SAID = f"Connection to https://me:horse@x/ refused, token=horse, {TOKEN} at step 12"
WORKER = TaskId("worker", 0)
FILE = f"""\
[jobs.worker]
tasks = ["localhost:auto"]
command = ["python", "train.py", "--wandb-key", "horse", "--lr", "0.1", "{TOKEN}"]
env = {{ DB_PASSWORD = "horse", LR = "0.1" }}
[run]
workdir = ""
"""


@pytest.fixture
def failed(run: ScriptedRun) -> Snapshot:
    """A run whose every text of programs and hosts has secrets in it."""
    evidence = (Evidence(WORKER, SAID, in_log=True), Evidence(TaskId("ps", 0), SAID))
    run.write("worker:0", f"{SAID}\n".encode())
    run.task("worker:0", state=TaskState.FAILED, exit_code=1, attempt=1, reason=SAID)
    run.change(
        verdict=Verdict((WORKER,), Kind.RAISED, True, SAID, evidence), results_missing=(SAID,)
    )
    failure = Failure(WORKER, "tf1", SAID, 1.0, tail=(SAID,))
    survivor = Survivor(12, f"sshpass -p horse ssh tf1 {SAID}", "S")
    hosts = (HostReceipt("a", survivors=(survivor,)), HostReceipt("b", doubt=SAID))
    run.end(Outcome.FAILED, 4, failure=failure, receipt=Receipt(hosts, begun=True))
    (host, *others) = run.snapshot().hosts
    refused = replace(
        host, state=HostState.REFUSED, reason=SAID, destination="sshpass -p horse ssh x"
    )
    run.change(hosts=(refused, *others), launcher_error=SAID)
    return run.snapshot()


def finding() -> Finding:
    """A finding that names the holder of a port by its command line, another user's."""
    sentence = f"port 2222 is in use by pid 7 (python serve.py --api-key horse {TOKEN})"
    return Finding(Severity.ERROR, Check.PORTS, "port-in-use", "tf1", "in use", sentence, SAID)


def report() -> Report:
    """A preflight with that finding."""
    return Report("c", ("tf1",), (finding(),), (), (), 1.0)


def printed(capsys: pytest.CaptureFixture[str], act: Callable[[], object]) -> str:
    """What an act prints."""
    act()
    return "".join(capsys.readouterr())


def test_no_place_tells_a_secret(
    failed: Snapshot,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given secrets in a traceback, a cause, evidence, a reason, a refusal, a receipt, a finding, a
    crash and a cluster file, when each place that tells of them does so, then what it says is
    there, without them."""
    file, bad = tmp_path / "c.toml", tmp_path / "bad.toml"
    file.write_text(FILE)
    bad.write_text(
        FILE.replace('workdir = ""', 'workdir = "https://me:horse@x/"\\nlease = "token=horse"')
    )

    async def checked(*_: Any, **__: Any) -> Report:
        return report()

    monkeypatch.setattr(check, "_preflight", checked)
    monkeypatch.setattr(
        check, "read_cluster", lambda *_, **__: (argparse.Namespace(slurm=None), "")
    )
    monkeypatch.setattr(doctor, "facts", lambda: {"versions": {"ssh": SAID}})
    error = RuntimeError(SAID)
    environ = {"TERM_PROGRAM": "iTerm.app"}
    news = RunNews(Notify.DESKTOP)
    news.read(replace(failed, state=RunPhase.RUNNING, first_failure=None))
    told = news.read(replace(failed, state=RunPhase.RUNNING))
    about = failed, TERMINAL
    places: Mapping[str, Callable[[], str]] = {
        "the end of up": lambda: outcome.report(failed, tmp_path),
        "cause": lambda: outcome.cause_text(*about).plain,
        "failure": lambda: outcome.failure_text(*about, 5, lines=[SAID]).plain,
        "failure on a small screen": lambda: outcome.failure_text(*about, 5, brief=True).plain,
        "refusals": lambda: outcome.refusals_text(*about).plain,
        "receipt": lambda: outcome.receipt_text(*about).plain,
        "lines of a receipt": lambda: "\n".join(outcome.receipt_lines(failed)),
        "tasks": lambda: outcome.tasks_text(failed).plain,
        "page of the cause": lambda: cause_sentence(failed)[0],
        "evidence": lambda: "\n".join(row.text for row in evidence_rows(failed, 1.0)),
        "message": lambda: printed(capsys, lambda: streams.message(SAID)),
        "notification": lambda: sequence(Notify.DESKTOP, told, environ),
        "crash": lambda: printed(capsys, lambda: crash.report(error, tmp_path)),
        "file of crashes": lambda: (tmp_path / crash.FILE_NAME).read_text(),
        "crash without a file": lambda: printed(capsys, lambda: crash.report(error, file)),
        "finding": lambda: group_text(grouped([finding()])[0], TERMINAL).plain,
        "check": lambda: printed(
            capsys, lambda: check.check(argparse.Namespace(json=False, accept_new=False))
        ),
        "check --json": lambda: printed(
            capsys, lambda: check.check(argparse.Namespace(json=True, accept_new=False))
        ),
        "doctor": lambda: printed(capsys, lambda: doctor.doctor(argparse.Namespace())),
        "plan": lambda: printed(capsys, lambda: main(["plan", str(file)])),
        "plan --json": lambda: printed(capsys, lambda: main(["plan", str(file), "--json"])),
        "problems of a file": lambda: printed(capsys, lambda: main(["plan", str(bad)])),
    }
    said = {place: tell() for place, tell in places.items()}
    assert {place: text for place, text in said.items() if re.search("horse|battery", text)} == {}
    assert [place for place, text in said.items() if MASK not in text] == []
    task = json.loads(said["plan --json"])["tasks"][0]
    assert task["argv"][2:] == ["--wandb-key", MASK, "--lr", "0.1", MASK]
    assert (task["env"]["DB_PASSWORD"], task["env"]["LR"]) == (MASK, "0.1")


async def test_toasts_and_copied_lines_have_no_secret(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given lines with a token, when they are copied from a pane, then what is copied is without,
    the toast counts what was masked and says where the log is; a toast with a secret hides it."""
    run.write("worker:0", f"one\n{TOKEN}\n".encode())
    copied: list[str] = []
    app = TfmuxApp(run, config=Config())
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "horsebattery")
        await pilot.press("v", "k", "y")
        await shows(pilot, "clipboard, 1 secret")
        assert copied == [f"one\n{MASK}\n"]
        app.notify(f"hook on_end: --token horse {SAID}")
        await shows(pilot, f"--token {MASK}")


def test_nothing_else_writes_to_people() -> None:
    """Given the sources of the terminal side, then only these write to stderr by themselves, show a
    toast or hand a text to a clipboard: each is shown above, or says nothing of programs."""
    writers = {
        r"file=sys\.stderr": {"main.py", "crash.py", "streams.py", "commands/check.py"},
        r"write_line\(": {
            "streams.py",
            "headless.py",
            "commands/launch.py",
            "commands/which_run.py",
        },
        r"super\(\)\.notify\(": {"app.py"},
        r"await copy\(": {
            "app.py",
            "screens/run_screen.py",
            "screens/copied_report.py",
            "widgets/pane.py",
        },
        r"write_json\(": {
            *("streams.py", "commands/check.py", "commands/plan.py", "commands/ps.py"),
            "commands/stacks.py",
        },
    }
    sources = {path: path.read_text() for path in (REPOSITORY / "tui").rglob("*.py")}
    for pattern, places in writers.items():
        found = {
            str(path.relative_to(REPOSITORY / "tui"))
            for path, text in sources.items()
            if re.search(pattern, text)
        }
        assert found == places, pattern
