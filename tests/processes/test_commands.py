"""Commands that print: what people and programs get of a run, and how they end where it cannot be
written."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs import events
from launcher.errors import TfmuxError
from launcher.history.run_list import ActiveHost, ListedRun, active_runs_json, active_runs_schema
from launcher.ids import TaskId
from launcher.paths import config_home, tilde
from launcher.run.snapshot import AllocationView
from launcher.run.states import RunPhase
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, run, write
from tests.support.manual import DOCS
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.recorded import FAILED, GOOD, Recording
from tests.support.terminal import Terminal, cluster, living
from tui import extras
from tui.commands import doctor
from tui.commands.ps import table

TFMUX = [sys.executable, "-P", "-m", "tui.main"]
LINES = 2000
MANY = f"for number in range({LINES}): print('line', number, 'x' * 100)"
SLOWLY = (
    "import time\nfor number in range(100000): print('line', number, flush=True); time.sleep(0.01)"
)


def only_run() -> RunFolder:
    """The only run's folder."""
    (folder,) = RunFolder.all()
    return folder


@variants("words", [["--headless"], ["--json"]], ids=["headless", "json"], test=1)
@variants(
    ("flags", "path", "reason"),
    [(os.O_WRONLY, "/dev/full", "No space left on device"), (os.O_RDONLY, os.devnull, "Bad file")],
    ids=["full", "read-only"],
    test=1,
)
def test_a_log_that_cannot_be_written_is_no_matter_of_the_run(
    tmp_path: Path, words: list[str], flags: int, path: str, reason: str
) -> None:
    """The run ends by itself with its own code, its logs are whole, and stderr says once what
    stdout lacks, and at the end how much."""
    stdout = os.open(path, flags)
    up = [*TFMUX, "up", str(write(tmp_path, one_task(MANY))), *words]
    done = subprocess.run(up, cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, text=True)
    os.close(stdout)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count(reason) == 1
    assert "could not be written to stdout" in done.stderr
    log = (only_run().path / "worker-0.log").read_text()
    assert log.splitlines()[-1] == f"line {LINES - 1} {'x' * 100}"


def test_lines_come_again_when_there_is_room(tmp_path: Path) -> None:
    """A disk gets full in the middle of a line, and then has room: each line is whole, and the
    run's end is the person's."""
    file, copy = write(tmp_path, one_task(SLOWLY)), tmp_path / "copy"
    with copy.open("wb") as stdout, (tmp_path / "said").open("wb") as said:
        up = subprocess.Popen(
            [*TFMUX, "up", str(file), "--headless"], cwd=REPOSITORY, stdout=stdout, stderr=said
        )
    try:
        wait_until(lambda: copy.stat().st_size > 100, "lines")
        full = copy.stat().st_size + 1005
        resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        wait_until(lambda: "left out" in (tmp_path / "said").read_text(), "the sentence")
        assert copy.stat().st_size == full
        lost = (only_run().path / "worker-0.log").stat().st_size + 100
        wait_until(lambda: (only_run().path / "worker-0.log").stat().st_size > lost, "lost lines")
        resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (-1, -1))
        wait_until(lambda: copy.stat().st_size > full + 100, "lines again")
        assert living() == {"worker:0"}
        up.terminate()
        assert up.wait(PATIENCE) == 143
    finally:
        up.kill()
        up.wait()
    lines = copy.read_text().splitlines()
    numbers = [int(line.removeprefix("worker:0 | line ")) for line in lines]
    assert numbers == sorted(numbers) and len(numbers) <= numbers[-1]
    assert (tmp_path / "said").read_text().count("File too large") == 1


def test_a_pipe_that_does_not_block_gets_every_line(tmp_path: Path) -> None:
    """Node.js, and whoever else shares a descriptor, may set it so."""
    reading, writing = os.pipe()
    flags = fcntl.fcntl(writing, fcntl.F_GETFL)
    fcntl.fcntl(writing, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    up = [*TFMUX, "up", str(write(tmp_path, one_task(MANY))), "--headless"]
    with subprocess.Popen(up, cwd=REPOSITORY, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        wait_until(lambda: RunFolder.all() and not living(), "the task has ended")
        with open(reading) as stdout:
            lines = stdout.read().splitlines()
        assert process.wait(PATIENCE) == 0, process.stderr and process.stderr.read()
    assert len(lines) == LINES


@pytest.mark.prove
def test_messages_that_cannot_be_written_change_no_exit_code(tmp_path: Path) -> None:
    """Neither that of a run nor that of wrong usage."""
    file = str(write(tmp_path, one_task(MANY)))
    with open("/dev/full", "wb") as full:
        for words, code in ((["up", file, "--headless"], 0), (["up", "no.toml"], 2), (["x"], 2)):
            done = subprocess.run(
                [*TFMUX, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=full, text=True
            )
            assert done.returncode == code, words
            assert done.stdout.count("\n") == (0 if code else LINES)


def test_receipts_that_cannot_be_printed_end_runs_as_others_do(tmp_path: Path) -> None:
    """All runs are dead, the code is that of the kill, and stderr says what is the matter."""
    file = write(tmp_path, one_task(SLOWLY))
    with Up("up", str(file), "--json") as first, Up("up", str(file), "--json") as second:
        for up in (first, second):
            up.log("worker:0", "line 1")
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*TFMUX, "kill", "--all"],
                cwd=REPOSITORY,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "tfmux: stdout: No space left on device\n"
        assert not living()
        assert first.wait() == second.wait() == 130


@variants(
    "words",
    [["--version"], ["--help"], ["plan"], ["plan", "--json"], ["schema"], ["ps"], ["logs"]],
    ids=" ".join,
    test=3,
)
def test_commands_that_only_print_say_so(tmp_path: Path, words: Sequence[str]) -> None:
    """On a full disk one sentence and exit code 1; to a reader that has gone, nothing."""
    file = write(tmp_path, one_task(SLOWLY))
    if words[0] == "plan":
        words = [words[0], str(file), *words[1:]]
    if words[0] not in ("ps", "logs"):
        printed(words)
        return
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "line 1")
        printed([*words, up.run_id] if words[0] == "logs" else words)


def printed(words: Sequence[str]) -> None:
    """Runs a command whose output goes to a full disk, and into a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    said = "tfmux: stdout: No space left on device\n"
    for stdout, text in ((full, said), (writing, "")):
        done = subprocess.run(
            [*TFMUX, *words], cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        os.close(stdout)
        assert (done.returncode, done.stderr) == (1, text)


def test_a_screen_is_drawn_where_stdout_is(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """`2> FILE` at a terminal takes messages, and no screen."""
    file, errors = cluster(tmp_path), tmp_path / "errors"
    window = terminal(120, 40)
    window.start(["sh", "-c", f'"$0" -P -m tui.main up {file} 2> {errors}', sys.executable])
    window.wait_for("worker:1 @localhost", "step 2")
    assert not errors.read_text()
    window.keys("F9")
    window.wait_for("no process is left", "q leave")
    window.keys("q")
    window.wait_for("EXIT-CODE 130")
    said = errors.read_text()
    assert "no process is left" in said and "\x1b" not in said
    assert not living()


def test_without_keys_there_is_no_screen(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """In `while read host; do tfmux up …; done < list` the list is no sequence of keys."""
    file, words = write(tmp_path, one_task("print('fine')")), tmp_path / "list"
    words.write_text("q\ny\nd\n")
    window = terminal(120, 40)
    window.start(["sh", "-c", f'"$0" -P -m tui.main up {file} < {words}', sys.executable])
    window.wait_for(
        "no terminal on stdin: continuing as with --headless", "worker:0 | fine", "EXIT-CODE 0"
    )


CLUSTER = r"""
name = "odd"
[jobs.worker]
tasks = ["localhost:auto"]
command = ["echo", "one\u001b]52;c;b25l\u0007", "two\nlines"]
ready = "started"
[run]
workdir = ""
env = { WORD = "\u001b[2J\u202e" }
"""


def test_plan_writes_nothing_that_a_terminal_acts_on(tmp_path: Path) -> None:
    """The file may come from elsewhere; a pipe and `--json` get it as it is."""
    file = write(tmp_path, CLUSTER)
    leader, follower = os.openpty()
    words = [sys.executable, "-P", "-m", "tui.main", "plan", str(file)]
    subprocess.run(words, cwd=REPOSITORY, stdout=follower, check=True)
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "one␛]52;c;b25l␇" in shown and "WORD='␛[2J␦'" in shown
    assert "'two\r\nlines'" in shown
    assert not {"\x1b", "\x07", "\u202e"} & {*shown}
    assert "\x1b]52;c;b25l\x07" in command.run("plan", str(file)).stdout


def test_logs_of_a_task_that_is_not_there(recorded: Recording) -> None:
    """Also where its name is none: the tasks that there are, and wrong usage."""
    run_id = recorded(GOOD).run_id
    for name in ("worker:7", "worker:x", "worker", ":"):
        done = command.run("logs", run_id, name)
        assert done.returncode == 2, done.stderr
        assert done.stderr == f"tfmux: the run has no task {name!r}; it has worker:0\n"


@variants("words", [(), ("worker:0",)], ids=["all", "one"], test=1)
def test_following_logs_ends_with_the_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Given a run that ended before, or one that ends meanwhile: all lines, and exit code 0."""
    script = "import pathlib, time\nprint('first', flush=True)\n" + (
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.05)\n"
    )
    script += "print('last')"
    with Up("up", str(write(tmp_path, one_task(script))), "--json") as up:
        up.state("worker:0", "ready")
        following = [sys.executable, "-P", "-m", "tui.main", "logs", "-f", up.run_id, *words]
        with subprocess.Popen(following, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline().endswith(b"first\n")
            (tmp_path / "go").touch()
            assert process.stdout.read().endswith(b"last\n")
        assert process.returncode == 0
        assert up.wait() == 0, up.transcript()
    done = command.run(*following[4:])
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("last")


def test_following_logs_is_left_with_ctrl_c(tmp_path: Path) -> None:
    """Without a traceback, as a command that a person has ended."""
    file = write(tmp_path, one_task("import time; print('two', flush=True); time.sleep(1000)"))
    with Up("up", str(file), "--json") as up:
        up.state("worker:0", "ready")
        words = [sys.executable, "-P", "-m", "tui.main", "logs", "-f", up.run_id]
        with subprocess.Popen(
            words,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as process:
            assert process.stdout and process.stderr
            assert b"two" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == b""
        assert process.returncode == 130
        up.press_ctrl_c()
        assert up.wait() == 130


TEXT = cluster_text(
    {"ps": 1, "worker": 2},
    "lists",
    command=["sleep", "1000"],
    workdir="",
    start={"ready": {"ps": "started", "worker": "started"}},
)
WORKERS = (TaskId("worker", 0), TaskId("worker", 1))
FAR = ListedRun(
    Summary("far-20261122-101132-e78e", "far", RunPhase.RUNNING, 1000.0, tasks=3),
    RunFolder(Path("far-20261122-101132-e78e")),
    hosts=(ActiveHost("tf1", WORKERS, agent=True), ActiveHost("tf2", unreachable="timed out")),
)
_LONG = "a-very-long-name-20261122-101132-e78e"
QUEUED = ListedRun(
    Summary(_LONG, "a very long name", RunPhase.QUEUED, 1000.0, tasks=16),
    RunFolder(Path(_LONG)),
    launcher=17,
    queued=AllocationView("Slurm", "8123", "PENDING", "Resources"),
    queued_since=1000.0,
)


def test_a_line_for_each_run_in_aligned_columns() -> None:
    """No blank within a column, whatever a cluster is called: `awk` and `cut` can read it."""
    titles, *rows = table((FAR, QUEUED), 1083.0).splitlines()
    cells = [row.split() for row in rows]
    assert titles.split() == ["RUN", "CLUSTER", "PHASE", "TASKS", "HOSTS", "STARTED", "ELAPSED"]
    assert [len(row) for row in cells] == [7, 7]
    assert cells[0][:5] == ["far-20261122-101132-e78e", "far", "unsupervised", "2/3", "1/2"]
    assert cells[1][2:5] == ["queued", "0/16", "0/0"] and cells[1][6] == "1:23"
    assert {row.index(cells[at][2]) for at, row in enumerate(rows)} == {titles.index("PHASE")}


@pytest.mark.parametrize("run", [FAR, QUEUED], ids=["unsupervised", "queued"])
def test_the_json_form_fits_its_schema(run: ListedRun) -> None:
    """Each field is described, and nothing else is printed."""
    schema, (record,) = active_runs_schema(), active_runs_json((run,))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate([record], schema)
    keys = [
        "attempt",
        "attempt_text",
        "background",
        "cause_text",
        "detached_lease",
        "hosts",
        "job_ended",
        "launcher",
        "name",
        "queue",
        "run",
        "stalled",
        "stalled_since",
        "started",
        "state",
        "tasks",
    ]
    assert sorted(record) == keys
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([record | {"more": 1}], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{key: record[key] for key in keys[1:]}], schema)


@pytest.fixture
def active(tmp_path: Path) -> Iterator[str]:
    """The id of a run on this machine that has a launcher process."""
    with Up("up", str(write(tmp_path, TEXT)), "--json") as up:
        up.state("worker:1", "ready")
        yield up.run_id
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()


def test_the_three_forms_tell_of_the_same_run(active: str) -> None:
    """A pipe gets the table without colours; `-q` its name alone; `--json` its tasks."""
    _, row = command.run("ps").stdout.splitlines()
    assert row.split()[:5] == [active, "lists", "running", "3/3", "1/1"]
    assert command.run("ps", "-q").stdout == f"{active}\n"
    done = command.run("ps", "--json")
    jsonschema.validate(json.loads(done.stdout), active_runs_schema())
    (run,) = json.loads(done.stdout)
    assert run["hosts"][0]["tasks"] == ["ps:0", "worker:0", "worker:1"] and run["launcher"]
    assert command.run("ps", "-q", "--json").returncode == 2


def test_a_run_with_a_launcher_process_needs_no_ssh(active: str) -> None:
    """Not even imported: half of the time that `tfmux ps` took."""
    code = (
        "import sys\nfrom tui.main import main\nmain(['ps'])\n"
        "print([name for name in ('asyncssh', 'rich', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env=os.environ,
    )
    assert active in done.stdout and done.stdout.splitlines()[-1] == "[]"


def test_it_prints_the_facts(tfmux_home: Path) -> None:
    """A table for each, with its name, and a line for each package that was asked for."""
    done = run("doctor")
    assert done.returncode == 0 and not done.stderr, done.stderr
    for name in ("versions", "terminal", "programs", "config", "looks"):
        assert f"\n{name} " in f"\n{done.stdout}"
    assert "ssh: OpenSSH" in done.stdout
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert f"python: {platform.python_version()} {tilde(Path(sys.executable))}" in lines
    for package in ("asyncssh", "textual", "tensorflow", "textual-serve"):
        assert f"{package}: {metadata.version(package)}" in lines
    assert not any(line.startswith(("pytest:", "tfmux[")) for line in lines)
    assert not list(tfmux_home.rglob("tfmux")), "it has made something"


def test_secrets_and_names_of_hosts_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment values beyond a few named ones, this machine's name, the home's path."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("API_TOKEN", "SSH_AUTH_SOCK", "SSH_CONNECTION", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "secret-of-mine")
    monkeypatch.setattr(platform, "node", lambda: "secret-of-mine")
    found = doctor.facts()
    text = str(found)
    assert "secret-of-mine" not in text and "API_TOKEN" not in text
    assert str(Path.home()) not in text
    assert found["terminal"]["TERM"] == "xterm-256color"
    assert found["terminal"]["SSH_CONNECTION"] == "set"


def test_a_program_that_fails_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's complaint may name a host that it could not reach."""
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\necho cannot reach login7.example.org >&2\nexit 1\n")
    program.chmod(0o755)
    programs = {"slurm": f"{program} --version", "ssh": "tfmux-no-such-program"}
    monkeypatch.setattr(doctor, "_PROGRAMS", programs)
    found = doctor.facts()["programs"]
    assert found["slurm"].endswith("ended with status 1") and found["ssh"] == "none"


def test_problems_of_the_config_file_are_listed() -> None:
    """An unknown key, by the file's name."""
    path = config_home() / "config.toml"
    assert doctor.facts()["config"] == {"problems": "none"}
    path.parent.mkdir(parents=True)
    path.write_text("colour = 3\n")
    said = "~/.config/tfmux/config.toml: unknown key 'colour'"
    assert doctor.facts()["config"] == {"problems": said}


@pytest.mark.parametrize(
    ("version", "prefix", "said"),
    [
        ((3, 13), "/usr", "pip install 'tfmux[trainer]'"),
        ((3, 13), "/home/a/.local/share/pipx/venvs/tfmux", "pipx inject tfmux 'tfmux[trainer]'"),
        ((3, 14), "/usr", "with Python 3.11, 3.12 or 3.13"),
    ],
)
def test_a_missing_extra_is_said_in_one_line(
    version: Any, prefix: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command of that installation; where TensorFlow has no wheel, that."""
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setitem(extras.MODULES, extras.Extra.TRAINER, ("tfmux_no_such_module",))
    with pytest.raises(TfmuxError) as error:
        extras.require(extras.Extra.TRAINER, "demos")
    assert said in str(error.value) and "\n" not in str(error.value)


def _strict(schema: Any) -> Any:
    """The schema with no further keys allowed."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    return {**made, "additionalProperties": False} if "required" in made else made


def _check(lines: list[dict[str, Any]]) -> None:
    validator = jsonschema.Draft202012Validator(_strict(events.schema()))
    for line in lines:
        error = jsonschema.exceptions.best_match(validator.iter_errors(line))
        assert error is None, f"{line}: {error.message}"


def test_the_schema_is_one_and_refuses_what_is_no_event() -> None:
    """An unknown kind, a missing key, a wrong type."""
    jsonschema.Draft202012Validator.check_schema(events.schema())
    log = {"time": 1.0, "event": "log", "task": "a:0", "host": "b", "text": "c"}
    _check([log])
    for wrong in ({**log, "event": "lag"}, {**log, "time": "now"}, {"event": "log"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, events.schema())


def test_every_field_is_described() -> None:
    """In the schema, and so in `docs/events.md`; `event` says what it is by its value."""
    bare = [
        (name, field)
        for name, made in events.schema()["$defs"].items()
        for field, value in made["properties"].items()
        if "description" not in value and field != "event"
    ]
    assert bare == []


def test_the_events_of_four_hosts() -> None:
    """The manual's events are those of the recorded training; `python -m docs.four_hosts` records
    them anew."""
    lines = (DOCS / "four-hosts-events.jsonl").read_text().splitlines()
    _check([json.loads(line) for line in lines])


def test_the_events_of_a_run(recorded: Recording) -> None:
    """What `--json` prints, the failure of a task and its receipt among it, and what is kept."""
    up = recorded(FAILED)
    assert up.code == 1
    _check(up.events)
    assert {event["event"] for event in up.events} == {
        "run", "host", "task", "metric", "receipt", "log", "end",
    }  # fmt: skip
    kept = (up.folder / "events.jsonl").read_text()
    _check([json.loads(line) for line in kept.splitlines()])


WORDS = {
    '{"a": {"b": {"c": 1}}}': '{"a": {"b": {"c": 1}}}',
    "{'size': {rank}}": "{'size': 1}",
    "{rank} of {num.worker}": "1 of 2",
    "{{rank}}": "{rank}",
    "{{ message }}{% if x %}": "{{ message }}{% if x %}",
    "out=${now:%Y}/${name}": "out=${now:%Y}/${name}",
    "train-{000..099}.tar": "train-{000..099}.tar",
    "{rank}-{epoch}.ckpt": "1-{epoch}.ckpt",
    "{x} {epoch} {0} {} } {": "{x} {epoch} {0} {} } {",
}
"""Words, and what the second of two tasks gets."""


def test_only_placeholders_are_replaced() -> None:
    """Given JSON, templates, patterns and variables of Hydra, then they reach the program as they
    were typed; `{rank}` does not. A word that is filled in by halves is said."""
    echo = ["python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    done = run("run", "-n", "2", "--json", "--workdir", "", "--", *echo, *WORDS)
    assert done.returncode == 0, done.stderr
    events = map(json.loads, done.stdout.splitlines())
    (text,) = [e["text"] for e in events if e["event"] == "log" and e["task"] == "worker:1"]
    assert json.loads(text) == list(WORDS.values())
    assert "{epoch} is passed on as it is, and {rank} beside it is replaced" in done.stderr


@pytest.mark.prove
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--address", "a", "-H", "tf1"], "localhost, which is not among"),
        (["--address", "a b", "-H", "localhost,tf1"], "blanks or quotes"),
    ],
)
def test_an_address_that_is_wrong_is_named(words: list[str], said: str) -> None:
    """Given hosts that `ssh -G` is asked about, then exit 2, and nothing is started."""
    done = run("run", "--headless", *words, "--", "true")
    assert done.returncode == 2 and said in done.stderr
