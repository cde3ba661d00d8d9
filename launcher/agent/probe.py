"""What a preflight asks of a host: its Python, its GPUs, its disks, its way to the others.

Each question may block (a name server, a network disk, `nvidia-smi`), so the agent asks each in
a thread of its own; the launcher has a deadline for each and does not wait for what hangs.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict

from . import proc, reach, state
from .folders import Folders
from .notes import say
from .stats import memory

Answer = Dict[str, Any]

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


class Probe:
    """Answers questions, each `(what, …)` a method; keeps the probe listeners and the files
    that it has laid out until `close`."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._listeners: reach.Listeners | None = None
        self._marks: set[str] = set()
        self._questions: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "clock": lambda _: {"time": time.time()},
            "account": lambda _: account(),
            "python": lambda said: python(said["python"], said["env"], said["setup"]),
            "gpus": lambda _: gpus(),
            "room": lambda said: room(self._folders, said["paths"]),
            "logdir": self._logdir,
            "seen": lambda said: {"seen": os.path.exists(_own(said["path"]))},
            "leftovers": lambda _: {"found": leftovers(os.path.dirname(self._folders.run))},
            "listen": self._listen,
            "connect": lambda said: reach.connect(
                said["host"], said["port"], said["token"], said["seconds"]
            ),
        }

    def answer(self, said: dict[str, Any]) -> Answer:
        """Answers one question; may block.

        Raises:
            KeyError: there is no such question, or it is not whole.
            OSError: the host cannot tell.
        """
        return self._questions[said["what"]](said)

    def close(self) -> None:
        """Closes the listeners and takes our files away."""
        if self._listeners is not None:
            self._listeners.close()
        for path in self._marks:
            _unlink(path)

    def _listen(self, said: dict[str, Any]) -> Answer:
        if self._listeners is None:
            self._listeners = reach.Listeners(said["token"].encode())
        return {"failed": self._listeners.open(said["ports"])}

    def _logdir(self, said: dict[str, Any]) -> Answer:
        """Whether a log directory can be written, with a file that is really written."""
        path = _own(said["path"])
        base, above = path, 0
        while not os.path.lexists(base) and base != "/":
            base, above = os.path.dirname(base), above + 1
        mark = os.path.join(base, said["mark"])
        answer = {"path": path, "base": base, "above": above, "why": "", "old": _checkpoint(path)}
        self._marks.add(mark)
        try:
            with open(mark, "x") as file:
                file.write("tfmux looks whether this directory can be written\n")
        except OSError as error:  # on a full disk the file is there, and empty
            answer["why"] = error.strerror or str(error)
        if answer["why"] or not said["keep"]:
            self._marks.discard(mark)
            _unlink(mark)
        return answer


def account() -> Answer:
    """Who we are here, the login shell, and the proxies of the environment."""
    try:
        entry = pwd.getpwuid(os.getuid())
        user, shell = entry.pw_name, entry.pw_shell
    except KeyError:
        user, shell = str(os.getuid()), os.environ.get("SHELL", "")
    names = [name for each in _PROXIES for name in (each, each.upper())]
    return {
        "user": user,
        "shell": shell or "/bin/sh",
        "proxies": {name: os.environ[name] for name in names if os.environ.get(name)},
        "python": sys.version.split()[0],
        "executable": sys.executable,
    }


def python(interpreter: str, env: dict[str, str], setup: str) -> Answer:
    """An interpreter's version and TensorFlow's, from the packages' metadata: an import would
    take seconds and a GPU's memory."""
    argv = [os.path.expanduser(interpreter), "-c", _PYTHON]
    if setup:
        argv = ["/bin/sh", "-c", setup + '\nexec "$@"', "tfmux", *argv]
    environ = {key: value for key, value in os.environ.items() if key != "TFMUX_AGENT"}
    environ.update(env)
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environ,
            cwd="/",
            timeout=30,
        )
    except OSError as error:
        return {"failed": f"{argv[0]}: {error.strerror}"}
    except subprocess.TimeoutExpired:
        return {"failed": "it did not answer in 30 s"}
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    try:
        found: Answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return {"failed": said[-1][:300] if said else "it said nothing"}
    return found


def gpus() -> Answer:
    """What nvidia-smi lists: index, name, driver, memory."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"gpus": [], "why": ""}
    query = "--query-gpu=index,name,driver_version,memory.total"
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=15,
        )
    except subprocess.TimeoutExpired:
        return {"gpus": [], "why": "nvidia-smi did not answer in 15 s"}
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    rows = [[field.strip() for field in line.split(",")] for line in lines]
    if rows and all(len(row) == 4 and row[0].isdigit() for row in rows):
        return {"gpus": rows, "why": ""}
    quiet = not lines or lines[0].startswith("No devices")
    return {"gpus": [], "why": "" if quiet else lines[0][:200]}


def room(folders: Folders, paths: list[str]) -> Answer:
    """The room that is left where runs' folders and these log directories lie (what, path, free
    bytes, device), and the memory that is free."""
    disks = []
    places = [("tfmux's own folder", os.path.dirname(folders.run))]
    for what, path in places + [("the log directory", _own(path)) for path in paths]:
        while not os.path.exists(path) and path != "/":
            path = os.path.dirname(path)
        info = os.statvfs(path)
        full = info.f_files and not info.f_favail
        free = 0 if full else info.f_bavail * info.f_frsize
        disks.append([what, path, free, os.stat(path).st_dev])
    total, available = memory()
    return {"disks": disks, "memory": [available, total]}


def leftovers(base: str) -> list[list[Any]]:
    """Processes of ours that carry the tag of a run, or stand in its roster, while no agent of
    that run lives here: run, task, pid, command line."""
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
    for run, roster in _rosters(base):
        for pid, start, task in roster:
            process = everyone.get(pid)
            if process is not None and process.start == start:
                tags.setdefault(pid, (run, task))
    return [
        [run, task, pid, proc.command_line(pid)]
        for pid, (run, task) in sorted(tags.items())
        if run not in guarded
    ]


def _checkpoint(folder: str) -> list[Any]:
    """The newest checkpoint file in a log directory or one level below, and its age in seconds;
    empty where there is none."""
    newest: list[Any] = []
    try:
        below = [entry.path for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []
    for place in [folder, *sorted(below)[:_CHECKPOINT_FOLDERS]]:
        try:
            for entry in os.scandir(place):
                if _CHECKPOINT.fullmatch(entry.name):
                    age = time.time() - entry.stat().st_mtime
                    if not newest or age < newest[1]:
                        newest = [entry.path, age]
        except OSError:
            continue
    return newest


def _rosters(base: str) -> list[tuple[str, list[list[Any]]]]:
    """What agents of this boot have left on disk of whom they knew."""
    found = []
    for name in os.listdir(base):
        match = _RUN_FOLDER.match(name)
        if match is None:
            continue
        try:
            with open(os.path.join(base, name, "state.json")) as file:
                body = json.load(file)
        except (OSError, ValueError):
            continue
        if body.get("boot") == state.boot_id():
            found.append((match.group(1), body.get("roster") or []))
    return found


def _ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _own(path: str) -> str:
    return os.path.normpath(os.path.expanduser(path))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # it could not be made
    except OSError as error:
        say(f"{path}: {error}")
