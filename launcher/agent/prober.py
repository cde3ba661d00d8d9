"""Answers to a preflight: a host's Python, GPUs and disks, and its connections to the others.

Each question may block (a name server, a network disk, `nvidia-smi`), so the agent answers each
in a thread of its own; the launcher has a deadline for each and does not wait for what hangs.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Callable, Mapping, Sequence

from . import proc, reach, state
from .fields import FieldError
from .folders import Folders, boot_id
from .log import log_line
from .messages import Answer
from .probes import (
    AccountAnswer,
    AccountProbe,
    ClockAnswer,
    ClockProbe,
    CommandAnswer,
    CommandProbe,
    ConnectProbe,
    DiskSpaceAnswer,
    DiskSpaceProbe,
    GpusAnswer,
    GpusProbe,
    LeftoversAnswer,
    LeftoversProbe,
    ListenAnswer,
    ListenProbe,
    LogdirAnswer,
    LogdirProbe,
    PathAnswer,
    PathProbe,
    PythonAnswer,
    PythonProbe,
)
from .programs import program_problem
from .requests import Question
from .stats import memory

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
_CHECKPOINT = re.compile(
    r"checkpoint|.+\.ckpt(-\d+)?\.index|.+-\d+\.index|.+\.weights\.h5|ckpt-\d+"
)
_CHECKPOINT_FOLDERS = 200
_RUN_FOLDER = re.compile(r"(.+-\d{8}-\d{6}-[0-9a-f]{4})\.")
_PYTHON = """
import json, sys
from importlib import metadata, util
names = "tensorflow tensorflow-cpu tensorflow-gpu tf-nightly tensorflow-rocm intel-tensorflow"
found = ""
for name in names.split():
    try:
        found = metadata.version(name)
        break
    except metadata.PackageNotFoundError:
        continue
try:
    there = util.find_spec("tensorflow") is not None
except (ImportError, ValueError):
    there = False
print()
print(json.dumps({"version": sys.version.split()[0], "executable": sys.executable,
                  "tensorflow": found, "there": there}))
"""


_MODULE = """
import sys
from importlib import util
print()
print(util.find_spec(sys.argv[1]) is not None)
"""


_running: set[subprocess.Popen[bytes]] = set()
"""Programs that a probe has started and waits for."""


class Prober:
    """Answers probes; keeps the listeners and the files that it has made until `close`."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._listeners: reach.Listeners | None = None
        self._marks: set[str] = set()
        self._answers: dict[type, Callable[[Any], Answer]] = {
            ClockProbe: lambda _: ClockAnswer(time.time()),
            AccountProbe: lambda _: account(),
            PythonProbe: python,
            CommandProbe: lambda asked: CommandAnswer(command(asked)),
            GpusProbe: lambda _: gpus(),
            DiskSpaceProbe: lambda asked: disk_space(self._folders, asked.paths),
            LogdirProbe: self._logdir,
            PathProbe: lambda asked: PathAnswer(os.path.exists(_absolute(asked.path))),
            LeftoversProbe: lambda _: leftovers(os.path.dirname(self._folders.run)),
            ListenProbe: self._listen,
            ConnectProbe: lambda asked: reach.connect(
                asked.host, asked.port, asked.token, asked.seconds
            ),
        }

    def answer(self, asked: Question[Any]) -> Answer:
        """Answers one question; may block.

        Raises:
            OSError: the host cannot tell.
        """
        return self._answers[type(asked)](asked)

    def close(self) -> None:
        """Closes the listeners, removes our files, and kills the programs that still run: one that
        hangs would outlive the agent."""
        for child in list(_running):
            _kill(child)
        if self._listeners is not None:
            self._listeners.close()
        for path in self._marks:
            _unlink(path)

    def _listen(self, asked: ListenProbe) -> ListenAnswer:
        if self._listeners is None:
            self._listeners = reach.Listeners(asked.token.encode())
        return self._listeners.open(asked.ports)

    def _logdir(self, asked: LogdirProbe) -> LogdirAnswer:
        """Whether a log directory can be written, with a file that is really written."""
        path = _absolute(asked.path)
        base, above = path, 0
        while not os.path.lexists(base) and base != "/":
            base, above = os.path.dirname(base), above + 1
        mark = os.path.join(base, asked.mark)
        old, why = _checkpoint(path), ""
        self._marks.add(mark)
        try:
            with open(mark, "x") as file:
                file.write("tfmux checks whether this directory can be written\n")
        except OSError as error:  # on a full disk the file is there, and empty
            why = error.strerror or str(error)
        if why or not asked.keep:
            self._marks.discard(mark)
            _unlink(mark)
        return LogdirAnswer(path, base, above, why, old)


def account() -> AccountAnswer:
    """The user, the login shell, and the proxies of the environment."""
    try:
        entry = pwd.getpwuid(os.getuid())
        user, shell = entry.pw_name, entry.pw_shell
    except KeyError:
        user, shell = str(os.getuid()), os.environ.get("SHELL", "")
    names = [name for each in _PROXIES for name in (each, each.upper())]
    return AccountAnswer(
        user=user,
        shell=shell or "/bin/sh",
        proxies={name: os.environ[name] for name in names if os.environ.get(name)},
        python=sys.version.split()[0],
        executable=sys.executable,
    )


def python(asked: PythonProbe) -> PythonAnswer:
    """An interpreter's version and TensorFlow's, from the packages' metadata: an import would
    take seconds and a GPU's memory."""
    argv = (*asked.shell, os.path.expanduser(asked.python), "-c", _PYTHON)
    last, why = _last_line(argv, asked.env, asked.cwd)
    try:
        return PythonAnswer(why) if why else PythonAnswer.from_json(json.loads(last))
    except (ValueError, FieldError):
        return PythonAnswer(last[:300] or "it printed nothing")


def command(asked: CommandProbe) -> str:
    """Reason for which a task's command cannot run with the `PATH` that its shells set; empty if it
    can."""
    path = asked.env.get("PATH", os.environ.get("PATH", ""))
    if asked.shell:
        argv = (*asked.shell, "/bin/sh", "-c", 'echo; echo "$PATH"')
        path, why = _last_line(argv, asked.env, asked.cwd)
        if why:
            return why
    program = os.path.expanduser(asked.program)
    why = program_problem(program, path)
    if why or not asked.module:
        return why
    argv = (*asked.shell, program, "-c", _MODULE, asked.module)
    last, why = _last_line(argv, asked.env, asked.cwd)
    missing = f"{program} has no module {asked.module}" if last == "False" else ""
    return why or missing


def _last_line(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> tuple[str, str]:
    """The last line that a program prints, and why there is none."""
    environ = {key: value for key, value in os.environ.items() if key != "TFMUX_AGENT"}
    environ.update(env)
    try:
        done = _run(argv, 30, environ, cwd=os.path.expanduser(cwd))
    except OSError as error:  # of the program or of the directory
        return "", f"{error.filename or argv[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", "it did not answer in 30 s"
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    if done.returncode == 0 and lines:
        return lines[-1], ""
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    return "", errors[-1][:300] if errors else "it printed nothing"


def _run(
    argv: Sequence[str],
    seconds: float,
    env: Mapping[str, str] | None = None,
    stderr: int = subprocess.PIPE,
    cwd: str = "/",
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program in a session of its own; after so many seconds all of that is killed.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,
    ) as child:
        _running.add(child)
        try:
            out, errors = child.communicate(timeout=seconds)
        finally:
            _running.discard(child)
            _kill(child)
    return subprocess.CompletedProcess(argv, child.returncode, out, errors)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def gpus() -> GpusAnswer:
    """GPUs that nvidia-smi lists: index, name, driver, memory. Of a GPU that is lost, or has a
    defect, it prints a sentence between these rows."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return GpusAnswer(())
    query = "--query-gpu=index,name,driver_version,memory.total"
    try:
        done = _run([program, query, "--format=csv,noheader"], 15, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return GpusAnswer((), "nvidia-smi did not answer in 15 s")
    listed, why = [], ""
    for line in done.stdout.decode(errors="replace").splitlines():
        row = [field.strip() for field in line.split(",")]
        if len(row) == 4 and row[0].isdigit():
            listed.append((row[0], row[1], row[2], row[3]))
        elif line.strip() and not line.startswith("No devices"):
            why = why or line.strip()[:200]
    return GpusAnswer(tuple(listed), why)


def disk_space(folders: Folders, paths: Sequence[str]) -> DiskSpaceAnswer:
    """The free space where runs' folders and these log directories are, and the free memory."""
    disks = []
    places = [("tfmux's own folder", os.path.dirname(folders.run))]
    for what, path in places + [("the log directory", _absolute(path)) for path in paths]:
        while not os.path.exists(path) and path != "/":
            path = os.path.dirname(path)
        info = os.statvfs(path)
        full = info.f_files and not info.f_favail
        free = 0 if full else info.f_bavail * info.f_frsize
        disks.append((what, path, free, os.stat(path).st_dev))
    total, available = memory()
    return DiskSpaceAnswer(tuple(disks), (available, total))


def leftovers(base: str) -> LeftoversAnswer:
    """Processes of ours that carry the tag of a run, or are in its agent's state file, while no
    agent of that run lives here."""
    everyone = proc.table()
    tags, guarded = {}, set()
    for pid in everyone:
        if not _ours(pid):
            continue
        agent = proc.variable(pid, proc.AGENT_TAG)
        if agent is not None:
            guarded.add(agent.decode(errors="replace").rstrip(";"))
        tag = proc.variable(pid, proc.TAG)
        if tag is not None and tag.endswith(b";") and tag.count(b"/") >= 2:
            run, _, rest = tag[:-1].decode(errors="replace").partition("/")
            tags[pid] = (run, rest.rpartition("/")[0])
    for run, known_processes in _known_processes(base):
        for pid, start, task in known_processes:
            process = everyone.get(pid)
            if process is not None and process.start == start:
                tags.setdefault(pid, (run, task))
    return LeftoversAnswer(
        tuple(
            (run, task, pid, proc.command_line(pid))
            for pid, (run, task) in sorted(tags.items())
            if run not in guarded
        )
    )


def _checkpoint(folder: str) -> tuple[str, float] | None:
    """The newest checkpoint file in a log directory or one level below, and its age in seconds;
    None where there is none."""
    newest: tuple[str, float] | None = None
    try:
        below = [entry.path for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return None
    for place in [folder, *sorted(below)[:_CHECKPOINT_FOLDERS]]:
        with suppress(OSError):
            for entry in os.scandir(place):
                if _CHECKPOINT.fullmatch(entry.name):
                    age = time.time() - entry.stat().st_mtime
                    if newest is None or age < newest[1]:
                        newest = (entry.path, age)
    return newest


def _known_processes(base: str) -> list[tuple[str, tuple[tuple[int, int, str], ...]]]:
    """The known processes in the state files that agents of this boot have left, by run."""
    found = []
    for name in os.listdir(base):
        match = _RUN_FOLDER.match(name)
        if match is None:
            continue
        try:
            saved = state.read(os.path.join(base, name, "state.json"))
        except (OSError, ValueError):
            continue
        if saved.boot == boot_id():
            found.append((match.group(1), saved.known_processes))
    return found


def _ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _absolute(path: str) -> str:
    return os.path.normpath(os.path.expanduser(path))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # it could not be made
    except OSError as error:
        log_line(f"{path}: {error}")
