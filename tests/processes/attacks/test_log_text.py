"""Log text that costs expressions seconds: it must not delay the end of a run."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from launcher.store.metric_lines import Extractor
from tests.support import command
from tests.support.budgets import soak, soon
from tests.support.command import Up, python_task, write
from tests.support.scenario import confirmed, ready

WORST = {
    "digits": "'loss: ' + '1' * 30_000",
    "overstrikes": "'a' * 32_000 + '\\b' * 32_000",
    "steps": "'step 1 ' * 9_000",
    "bars": "'1/1 ' * 8_000",
}
"""Each is printed fifty times a second, `steps` without a newline."""

SCRIPT = """
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
        script = SCRIPT.replace("TEXT", text).replace("END", end)
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
