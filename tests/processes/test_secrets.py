"""Values of `env_from` and what looks like a secret: where a run tells of it, they are masked, and
nothing but the logs of its tasks has them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from launcher.client.run_client import RunClient
from launcher.errors import TfmuxError
from launcher.history.control import LONGEST_TEXT
from launcher.paths import runs_home
from launcher.secret_values import MASK
from launcher.store.runs import RunFolder
from tests.support.command import Up, run, write
from tests.support.patience import PATIENCE, wait_until
from tui.failure_report import failure_report

VALUE = "horse-battery staple\nsecond-row-of-the-horse"
TOKEN = "hf_horsebatterystaplehorse"
CLUSTER = """
name = "secret"
[jobs.worker]
tasks = ["localhost:auto"]
ready = "started"
[run]
workdir = ""
grace = 1
env_from = ["MY_LICENCE", "PIN_OF_MINE", "NOT_SET"]
command = ["{python}", "-u", "-c", 'SCRIPT', "--wandb-key", "horse-in-argv"]
[hooks]
on_end = ["{sys}", "-c", "import sys; open('told', 'w').write(sys.stdin.read()); print('TOKEN')"]
"""
FAILS = f"""import os; v = os.environ["MY_LICENCE"]; print("key", repr(v), v); \
raise ValueError("no access with {TOKEN} or " + v.split()[0])"""
SLEEPS = 'import os, time; print(os.environ["MY_LICENCE"], "up"); time.sleep(600)'
OTHER = """
[jobs.loud]
tasks = ["localhost:auto"]
ready = "started"
command = ["{python}", "-u", "-c", 'SCRIPT']
"""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the shell that launches."""
    monkeypatch.setenv("MY_LICENCE", VALUE)
    monkeypatch.setenv("PIN_OF_MINE", "123")
    monkeypatch.delenv("NOT_SET", raising=False)


def file(folder: Path, script: str, more: str = "") -> str:
    """A cluster whose task runs this script, and whose hook keeps what it is told."""
    text = CLUSTER.replace("SCRIPT", script).replace("{sys}", sys.executable) + more
    return str(write(folder, text.replace("TOKEN", TOKEN)))


def clean(text: str) -> str:
    """The text, in which there is no secret."""
    found = [line for line in text.splitlines() if "horse" in line or "battery" in line]
    assert found == [], found
    return text


def test_what_a_run_tells_has_no_secret(tmp_path: Path, variables: None) -> None:
    """Given a task that prints a value of env_from, of two lines, and fails with it and a token in
    its message, then the report of `up`, the record of the run, what hooks get and what they
    print, `plan` and its JSON are without; no file of the run has the value but the task's log, and
    nothing has a hash of it."""
    path = file(tmp_path, FAILS)
    done = run("up", "--headless", path)
    assert done.returncode == 1 and "horse-battery" in done.stdout  # the log, as it is
    said = clean(done.stderr)
    assert f"ValueError: no access with {MASK} or {MASK}" in said, said
    (folder,) = runs_home().iterdir()
    told = json.loads(clean((tmp_path / "told").read_text()))
    assert MASK in told["verdict"]["text"] and told["first_failure"]["tail"]
    for each in folder.rglob("*"):
        if each.is_file() and not each.name.startswith("worker-0"):
            data = each.read_text(errors="replace")
            assert "horse-battery" not in data and "second-row" not in data, each
    for words in (("plan", path), ("plan", path, "--json"), ("logs", "--help"), ("doctor",)):
        planned = run(*words)
        assert planned.returncode == 0, planned
        clean(planned.stdout + planned.stderr)
    assert "--wandb-key" in run("plan", path).stdout


def test_a_launcher_masks_what_another_shell_does_not_know(
    tmp_path: Path, variables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run that goes on behind a failed task, and a screen of another shell, in which the
    variables are not set, when it makes a report, then the launcher process has masked its values
    in it; the report says which it does not know and which are too short. One that asks for too
    much is refused. When the run has ended, the report says that the values are not known."""
    other = OTHER.replace("SCRIPT", FAILS) + '[run]\non_failure = "keep"\n'
    text = CLUSTER.partition("[hooks]")[0].replace("SCRIPT", SLEEPS)
    path = str(write(tmp_path, text.replace("[run]\n", other)))
    with Up("up", path, "--json") as up:
        up.log("worker:0", "up")
        up.state("loud:0", "failed")
        for name in ("MY_LICENCE", "PIN_OF_MINE"):
            monkeypatch.delenv(name)
        client = RunClient.attach(RunFolder(runs_home() / up.run_id), screen=False)
        try:
            masked = client.mask_values(f"a {VALUE} b 123").result(PATIENCE)
            assert masked.text == f"a {MASK} b 123"
            assert (masked.unknown, masked.short) == (("NOT_SET",), ("PIN_OF_MINE",))
            wait_until(lambda: client.snapshot().trouble is not None, "its trouble is known")
            about = client.snapshot(), client.logs
            report = clean(failure_report(*about, mask_values=client.mask_values))
            assert f"ValueError: no access with {MASK} or {MASK}\n" in report, report
            assert report.endswith(
                "value not known here, so not masked: NOT_SET (env_from)\n"
                "value too short to be masked: PIN_OF_MINE (env_from)\n"
            )
            with pytest.raises(TfmuxError):
                client.mask_values("x" * (LONGEST_TEXT + 1)).result(PATIENCE)
        finally:
            client.close()
    past = failure_report(*about)
    assert "not masked: MY_LICENCE, NOT_SET, PIN_OF_MINE (env_from)" in past
    assert TOKEN not in past
