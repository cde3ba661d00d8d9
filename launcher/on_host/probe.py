"""Answers to a preflight: a host's Python, GPUs and disks, and its connections to the others.

Each question may hang (a name server, a network disk, `nvidia-smi`): a process of its own answers
it (`program`), and the launcher has a deadline for each and does not wait for what hangs.
"""

from __future__ import annotations

import glob
import json
import os
import pwd
import re
import resource
import stat
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence

from ..agent import ports, processes
from ..agent.asked import ask_program
from ..agent.executables import (
    DEFAULT_PATH,
    PROGRAM_SECONDS,
    ProgramProblem,
    bounded,
    directory_problem,
    find_program,
    program_problem,
)
from ..agent.folders import Folders
from ..agent.nvidia_smi import NvidiaSmi
from ..agent.stats import memory
from . import held
from .linked import interpreter, mpi_library
from .reach import connect, resolve

Question = Mapping[str, Any]
Said = Dict[str, Any]

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
_CHECKPOINT = re.compile(
    r"checkpoint|.+\.ckpt(-\d+)?\.index|.+-\d+\.index|.+\.weights\.h5|ckpt-\d+"
)
_CHECKPOINT_FOLDERS = 200
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
cuda = by = ""
packages = ("torch nvidia-cuda-runtime nvidia-cuda-runtime-cu13 nvidia-cuda-runtime-cu12 "
            "nvidia-cuda-runtime-cu11")
for name in packages.split():
    try:
        version = metadata.version(name)
    except Exception:
        continue
    local = version.partition("+cu")[2]
    if name != "torch":
        cuda, by = ".".join(version.split(".")[:2]), name + " " + version
    elif local[:3].isdigit():
        cuda, by = local[:2] + "." + local[2:3], name + " " + version
    if cuda:
        break
print()
print(json.dumps({"version": sys.version.split()[0], "executable": sys.executable,
                  "tensorflow": found, "there": there, "cuda": cuda, "cuda_of": by}))
"""


_MODULE = """
import sys
from importlib import util
print()
print(util.find_spec(sys.argv[1]) is not None)
"""


_MODULES = """
import json, sys
from importlib import util
if sys.path[:1] == [""]:
    del sys.path[0]
missing = []
for name in json.loads(sys.argv[1]):
    try:
        if util.find_spec(name) is None:
            missing.append(name)
    except (ImportError, ValueError, AttributeError):
        pass
print()
print(json.dumps({"version": sys.version.split()[0], "missing": missing}))
"""
_PLACES = (
    "~/venv*",
    "~/.venv*",
    "~/*env",
    "~/.virtualenvs/*",
    "~/*/.venv",
    "~/.pyenv/versions/*",
    "~/*conda*",
    "~/*conda*/envs/*",
    "~/*forge*",
    "~/*forge*/envs/*",
    "~/.conda/envs/*",
    "/opt/*",
    "/opt/*conda*/envs/*",
    "/usr/local",
    "/usr",
)
"""Where people have their environments of Python."""
_PROCESS_SECONDS, _PROCESS_PAUSE = 4.0, 0.1
"""How long a question waits for a process that it may start."""
_HELD_SECONDS = 3.0
"""Longest time for which what runs hold is counted."""
_MOST_OFFERED = 4
_MOST_TRIED = 8
_OFFER_SECONDS = 15.0


def account() -> Said:
    """The user, the login shell, and the proxies of the environment."""
    try:
        entry = pwd.getpwuid(os.getuid())
        user, shell = entry.pw_name, entry.pw_shell
    except KeyError:
        user, shell = str(os.getuid()), os.environ.get("SHELL", "")
    names = [name for each in _PROXIES for name in (each, each.upper())]
    proxies = {name: os.environ[name] for name in names if os.environ.get(name)}
    return {"user": user, "shell": shell or "/bin/sh", "proxies": proxies}


def python(asked: Question) -> Said:
    """The version of an interpreter and of its TensorFlow, from the packages' metadata: an import
    would take seconds and a GPU's memory. `failed` says why nothing is known."""
    argv = (*asked["shell"], os.path.expanduser(asked["python"]), "-c", _PYTHON)
    last, why = _last_line(argv, asked["env"], asked["cwd"])
    if why:
        return {"failed": why}
    try:
        found = json.loads(last)
        names = ("version", "executable", "tensorflow", "there")
        more = {name: str(found.get(name, "")) for name in ("cuda", "cuda_of")}
        return {**{name: found[name] for name in names}, **more}
    except (ValueError, KeyError, TypeError):
        return {"failed": last[:300] or "it printed nothing"}


def modules(asked: Question) -> Said:
    """The modules that an interpreter does not have, with its `options`, variables and shells.
    Nothing is imported."""
    python = os.path.expanduser(asked["python"])
    names = json.dumps(asked["modules"])
    argv = (*asked["shell"], python, *asked["options"], "-c", _MODULES, names)
    last, why = _last_line(argv, asked["env"], asked["cwd"])
    try:
        found = {} if why else json.loads(last)
        return {"version": found["version"], "missing": found["missing"]}
    except (ValueError, KeyError, TypeError):
        return {"failed": why or last[:300] or "it printed nothing"}


def pythons(asked: Question) -> Said:
    """Interpreters of the usual places that have all `modules`, each with its version: those that
    were used before (`known`) first. An interpreter of another user is not started."""
    names, deadline = asked["modules"], time.monotonic() + _OFFER_SECONDS
    found: list[tuple[str, str]] = []
    tried = 0
    for program in _candidates(names[0], asked["known"]):
        seconds = deadline - time.monotonic()
        if tried == _MOST_TRIED or len(found) == _MOST_OFFERED or seconds <= 0:
            break
        tried += 1
        argv = (program, "-c", _MODULES, json.dumps(names))
        try:
            said = ask_program(argv, seconds)
            if said is None:
                continue
            answer = json.loads(said.out.decode().strip().splitlines()[-1])
            if answer["missing"] == []:
                found.append((program, str(answer["version"])))
        except (OSError, ValueError, IndexError, KeyError, TypeError):
            continue
    return {"found": found}


def _candidates(module: str, known: Sequence[str]) -> Iterator[str]:
    """Paths of interpreters that are likely to have a module, each once."""
    seen = set()
    for program in [*known, *_with_module(module)]:
        whole = os.path.expanduser(program)
        with suppress(OSError):
            info = os.stat(whole)
            trusted = info.st_uid in (0, os.getuid()) and not info.st_mode & stat.S_IWOTH
            if (
                trusted
                and whole not in seen
                and whole.startswith("/")
                and os.access(whole, os.X_OK)
            ):
                seen.add(whole)
                yield program


def _with_module(module: str) -> Iterator[str]:
    for place in _PLACES:
        for prefix in sorted(glob.glob(os.path.expanduser(place)), reverse=True):
            libraries = os.path.join(glob.escape(prefix), "lib*", "python3*", "*-packages")
            places = (os.path.join(libraries, name) for name in (module, f"{module}.py"))
            if any(next(glob.iglob(place), None) for place in places):
                yield os.path.join(prefix, "bin", "python3")
                yield os.path.join(prefix, "bin", "python")


def command(asked: Question) -> Said:
    """Reason for which a task's command cannot run with the `PATH` that its shells set: a `problem`
    of its program, or in words (`why`); both are empty if it can. For Python the command has a
    `module` (of `python -m`; empty: none)."""
    path = _with_home(asked["env"]).get("PATH", os.environ.get("PATH", DEFAULT_PATH))
    if asked["shell"]:
        argv = (*asked["shell"], "/bin/sh", "-c", 'echo; echo "$PATH"')
        path, why = _last_line(argv, asked["env"], asked["cwd"])
        if why:
            return {"why": why}
    program = os.path.expanduser(asked["program"])
    problem = program_problem(program, path, by_shell=bool(asked["shell"]))
    if problem or not asked["module"]:
        return _problem(problem)
    argv = (*asked["shell"], program, "-c", _MODULE, asked["module"])
    last, why = _last_line(argv, asked["env"], asked["cwd"])
    missing = f"{program} has no module {asked['module']}" if last == "False" else ""
    return {"why": why or missing}


def _problem(problem: ProgramProblem | None) -> Said:
    problem = bounded(problem)
    return {"problem": problem and problem._asdict()}


def _with_home(env: Mapping[str, str]) -> dict[str, str]:
    """Variables as tasks get them: the launcher does not know this home when it asks."""
    return {name: ":".join(map(_in_home, value.split(":"))) for name, value in env.items()}


def _in_home(path: str) -> str:
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path


def mpi(asked: Question) -> Said:
    """The MPI library of a task's program, with the `PATH` that its shells set: mpi4py of its
    Python, or one that it is linked with; empty if none."""
    path = _with_home(asked["env"]).get("PATH", os.environ.get("PATH", ""))
    if asked["shell"]:
        argv = (*asked["shell"], "/bin/sh", "-c", 'echo; echo "$PATH"')
        path = _last_line(argv, asked["env"], asked["cwd"])[0] or path
    name = os.path.expanduser(asked["program"])
    if "/" in name:
        name = os.path.join(os.path.expanduser(asked["cwd"]), name)
    program = find_program(name, path)
    if not program:
        return {"library": ""}
    words = [program] if _is_python(program) else interpreter(program)[:1]
    if not words or not _is_python(words[0]):
        return {"library": mpi_library(program)}
    argv = (*asked["shell"], words[0], "-c", _MODULE, "mpi4py")
    last, _ = _last_line(argv, asked["env"], asked["cwd"])
    return {"library": "mpi4py" if last == "True" else ""}


def _is_python(program: str) -> bool:
    return os.path.basename(program).startswith("python")


def _last_line(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> tuple[str, str]:
    """The last line that a program prints, and why there is none."""
    environ = {key: value for key, value in os.environ.items() if key != "TFMUX_AGENT"}
    environ.update(_with_home(env))
    deadline = time.monotonic() + _PROCESS_SECONDS
    try:
        while True:
            try:
                said = ask_program(argv, PROGRAM_SECONDS, environ, os.path.expanduser(cwd))
                break
            except BlockingIOError:  # other questions have all processes that the login may have
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PROCESS_PAUSE)
    except OSError as error:  # of the program or of the directory
        return "", f"{error.filename or argv[0]}: {error.strerror}"
    if said is None:
        return "", f"it did not answer in {PROGRAM_SECONDS:.0f} s"
    lines = said.out.decode(errors="replace").strip().splitlines()
    if said.status == 0 and lines:
        return lines[-1], ""
    errors = said.errors.decode(errors="replace").strip().splitlines()
    return "", errors[-1][:300] if errors else "it printed nothing"


def disk_space(folders: Folders, paths: Sequence[str]) -> Said:
    """The free space where runs' folders and these log directories are and in `/tmp`, and the free
    memory. Of each place what it is for, its path, its free bytes and its device. `size` is that of
    the disk with the runs' folders, and `held` what runs that have ended hold there."""
    disks = []
    places = [("tfmux's own folder", os.path.dirname(folders.run))]
    places += [("the log directory", _absolute(path)) for path in paths]
    for what, path in [*places, ("temporary files", "/tmp")]:
        while not os.path.exists(path) and path != "/":
            path = os.path.dirname(path)
        info = os.statvfs(path)
        full = info.f_files and not info.f_favail
        free = 0 if full else info.f_bavail * info.f_frsize
        disks.append((what, path, free, os.stat(path).st_dev))
    total, available = memory()
    info = os.statvfs(os.path.dirname(folders.run))
    size = info.f_blocks * info.f_frsize
    found = held.held(folders, _HELD_SECONDS)
    return {"disks": disks, "memory": (available, total), "size": size, "held": found}


def logdir(asked: Question) -> Said:
    """Whether a log directory can be written, with a file (`mark`) that is really written and
    stays where the question says so (`keep`), until the program ends. `base` is the folder that
    exists, so many levels `above`; `why` says why it cannot be written, `old` is the newest
    checkpoint and its age in seconds."""
    path, base, above = _base(asked)
    old, why = _checkpoint(path), ""
    try:
        with open(os.path.join(base, asked["mark"]), "x") as file:
            file.write("tfmux checks whether this directory can be written\n")
    except OSError as error:  # on a full disk the file is there, and empty
        why = error.strerror or str(error)
    if why or not asked["keep"]:
        remove_mark(asked)
    return {"path": path, "base": base, "above": above, "why": why, "old": old}


def remove_mark(asked: Question) -> None:
    """Removes the file of a question about a log directory."""
    with suppress(OSError):  # it could not be made, or is gone
        os.unlink(os.path.join(_base(asked)[1], asked["mark"]))


def _base(asked: Question) -> tuple[str, str, int]:
    path = _absolute(asked["path"])
    base, above = path, 0
    while not os.path.lexists(base) and base != "/":
        base, above = os.path.dirname(base), above + 1
    return path, base, above


def _ports(check: Sequence[int]) -> Said:
    return {"owners": ports.look(check, ())["owners"]}


def limits() -> Said:
    """The hard limit of open files, and how many processes and threads this account may have
    besides this program and the process that answers."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    free = None
    if os.geteuid() and most != resource.RLIM_INFINITY:
        used = 0
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):  # it has ended
                if _ours(int(pid)):
                    used += len(os.listdir(f"/proc/{pid}/task"))
        free = max(0, most - used + 2)
    return {"files": processes.most_descriptors(), "processes": free}


def leftovers() -> Said:
    """Processes of ours that carry the tag of a run, while no agent of that run lives here."""
    everyone = processes.table()
    tags, guarded = {}, set()
    for pid in everyone:
        if not _ours(pid):
            continue
        agent = processes.variable(pid, processes.AGENT_TAG)
        if agent is not None:
            guarded.add(agent.decode(errors="replace").rstrip(";"))
        tag = processes.variable(pid, processes.TAG)
        if tag is not None and tag.endswith(b";") and tag.count(b"/") >= 2:
            run, _, rest = tag[:-1].decode(errors="replace").partition("/")
            tags[pid] = (run, rest.rpartition("/")[0])
    found = [
        (run, task, pid, processes.command_line(pid))
        for pid, (run, task) in sorted(tags.items())
        if run not in guarded
    ]
    return {"found": found}


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


def _ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _absolute(path: str) -> str:
    return os.path.normpath(os.path.expanduser(path))


# Each question by its `what`, and the fields that it has besides.
ANSWERS: dict[str, Callable[[Question, Folders], Said]] = {
    "clock": lambda asked, folders: {"time": time.time()},
    "account": lambda asked, folders: account(),
    "python": lambda asked, folders: python(asked),  # python, env, shell, cwd
    "pythons": lambda asked, folders: pythons(asked),  # modules, known
    # python, options, modules, env, shell, cwd
    "modules": lambda asked, folders: modules(asked),
    "command": lambda asked, folders: command(asked),  # program, module, env, shell, cwd
    "mpi": lambda asked, folders: mpi(asked),  # program, env, shell, cwd
    "gpus": lambda asked, folders: NvidiaSmi().inventory(),
    "disk_space": lambda asked, folders: disk_space(folders, asked["paths"]),
    "own": lambda asked, folders: held.own(folders),
    "free": lambda asked, folders: held.free(folders),
    "logdir": lambda asked, folders: logdir(asked),  # path, mark, keep
    "path": lambda asked, folders: {"exists": os.path.exists(_absolute(asked["path"]))},
    "directory": lambda asked, folders: _problem(directory_problem(_absolute(asked["path"]))),
    "limits": lambda asked, folders: limits(),
    "leftovers": lambda asked, folders: leftovers(),
    "ports": lambda asked, folders: _ports(asked["check"]),
    "resolve": lambda asked, folders: resolve(asked["host"], asked["seconds"]),
    "connect": lambda asked, folders: connect(  # as a task would, by name
        asked["host"], asked["port"], asked["token"], asked["seconds"]
    ),
}
