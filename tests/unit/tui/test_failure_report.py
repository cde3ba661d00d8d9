"""Report of a run for a colleague: what goes into it, and what never does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome, TaskState
from tests.support.fakes import ScriptedRun
from tui.failure_report import MASK, failure_report

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
