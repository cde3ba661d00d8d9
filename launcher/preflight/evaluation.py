"""Evaluation of the answers of one agent, or of several: pure functions that make findings."""

from __future__ import annotations

import asyncio
import ipaddress
import posixpath
import re
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..agent.processes import fits_descriptors
from ..cluster.addresses import is_loopback
from ..cluster.choices import Framework, OnFailure
from ..cluster.file_model import ClusterModel
from ..cluster.roles import Role
from ..errors import AnswerError, HostError
from ..files.listing import Copied, LeftOut
from ..files.needed import above_workdir, left_out_note, other_files
from ..files.tensorflow_1 import version_1_scripts
from ..files.trees import CopiedFiles
from ..hosts.frames import GpusAnswer, PortOwner
from ..ids import TaskId
from ..plan.environment import gpu_shortage
from ..plan.foreground import background_problem
from ..plan.run_plan import HostPlan, Plan, cannot_run
from ..plan.shell_text import ShellText, shell_texts
from ..printable import printable
from ..quantities import age, counted, size
from ..run.gpus import GpuView, holders
from .distributions import REMOVED, advice
from .findings import HOST_FAILURES, Check, Finding, Severity, blocking, passed, warning
from .probes import (
    AccountAnswer,
    DiskSpaceAnswer,
    LimitsAnswer,
    LogdirAnswer,
    ModulesAnswer,
    PythonAnswer,
)

if TYPE_CHECKING:
    from .modules import MissingModules

DISK_FULL = 16 * 1024**2
DISK_LOW = 1024**3
LOW_PART = 0.1
"""Part of a disk below which it is low, however large it is."""
HELD_TOLD = 1024**3
"""Bytes that ended runs hold of which somebody should know."""
LOGDIR_PLACE = "the log directory"
"""What a probe calls the place of which a setting decides (`on_host.probe.disk_space`)."""
TEMPORARY_PLACE = "temporary files"
"""What a probe calls `/tmp`."""
MEMORY_LOW = 512 * 1024**2
"""Bytes for each task: about what an imported TensorFlow takes."""
CLOCK_OFF = 2.0
COPY_LARGE = 1024**3
"""Bytes of a copy from which on somebody should know."""
AGENT_PROCESSES = 6
"""Processes and threads of a bridge, a watchdog and an agent, at least."""
MOST_FILES = 8
"""Files that are named by commands and not copied, of one host."""
_MOST_MODULES = 6
"""Missing modules that are named."""
TRAINER_PYTHON = (3, 10)
"""The oldest Python that the bundled trainer runs in."""
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
_PLAIN_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "busybox")
_ODD_SHELLS = {"csh": "~/.cshrc", "tcsh": "~/.tcshrc or ~/.cshrc", "fish": "config.fish"}
"""Shells that are not POSIX shells, with the files that set their variables."""


def failure(error: HostError) -> Finding:
    """Reports why a host could not be reached, or its agent not be started."""
    check, brief = HOST_FAILURES.get(error.code, (Check.AGENT, "failed"))
    return blocking(check, error.code, error.host, brief, error.what, error.todo)


def unanswered(check: Check, severity: Severity, error: HostError) -> Finding:
    """Reports a check that got no answer: a disk or a program there hangs, or the host says what
    it lacks."""
    sentence = f"{check} could not be checked: {error.what}"
    todo = "check for a network disk or a driver that hangs there"
    if isinstance(error, AnswerError):
        todo = "raise that limit for the account, or free what it names"
    return Finding(severity, check, "no-answer", error.host, "no answer", sentence, todo)


def shell(host: str, account: AccountAnswer, noise: bytes) -> Iterator[Finding]:
    """Evaluates the login shell and what its start-up files print."""
    path = str(account.shell)
    name = posixpath.basename(path)
    said = noise.decode(errors="replace").strip().splitlines()
    if name not in _PLAIN_SHELLS:
        sentence, todo = f"the login shell of {account.user} is {path}, ", ""
        if name in _ODD_SHELLS:
            sentence += f"not a POSIX shell: PATH and other variables come from {_ODD_SHELLS[name]}"
            sentence += " only"
            todo = "set PATH and other variables there, or in env of the host"
        else:
            sentence += "which is not known to tfmux; it ran tfmux's command all the same"
        yield warning(Check.SHELL, "shell-odd", host, name, sentence, todo)
    if said:
        sentence = f"the start-up files of the login shell print text ('{said[0][:60]}') in "
        sentence += "sessions without a terminal: tfmux ignores it, but it breaks scp, sftp and "
        sentence += "rsync"
        todo = "print it only in interactive sessions (see ~/.bashrc)"
        yield warning(Check.SHELL, "shell-noise", host, "prints text", sentence, todo)
    if name in _PLAIN_SHELLS and not said:
        yield passed(Check.SHELL, host, name, f"the login shell is {path}")


def proxies(host: str, found: Mapping[str, str], no_proxy_hosts: Sequence[str]) -> Finding:
    """Evaluates proxy variables: with them gRPC connects to the other tasks through a proxy."""
    if not found:
        return passed(Check.PROXY, host, "none", "no proxy variable is set")
    names = ", ".join(found)
    hosts = ", ".join(no_proxy_hosts[:4]) + (", …" if len(no_proxy_hosts) > 4 else "")
    sentence = f"{names} is set: gRPC would connect to the other tasks through the proxy; "
    sentence += f"tfmux adds the cluster's hosts ({hosts}) to no_proxy of its tasks"
    todo = "unset it in env if a task sets up its own environment"
    return warning(Check.PROXY, "proxy-set", host, "set", sentence, todo)


def interpreter(
    host: str, name: str, answer: PythonAnswer, *, unless: str = "", offer: str = ""
) -> Finding:
    """Evaluates the Python that runs the tasks; `unless` says what may yet make it run, `offer` is
    one that would do."""
    if answer.failed:
        sentence = f"{name} does not run: {answer.failed}"
        if unless:
            sentence += f", unless {unless}"
            return warning(Check.PYTHON, "python-broken", host, "fails", sentence)
        todo = _offered(offer) or "correct python of the host, or setup"
        about = (Check.PYTHON, "python-broken", host, "fails", sentence, todo)
        return blocking(*about, offer=offer)
    sentence = f"{name} is Python {answer.version} ({answer.executable})"
    return passed(Check.PYTHON, host, str(answer.version), sentence)


def _offered(offer: str) -> str:
    return offer and f'write python = "{offer}" for the host'


def trainer_python(host: str, name: str, answer: PythonAnswer) -> Iterator[Finding]:
    """Reports a Python that is too old for the bundled trainer."""
    found = _VERSION.match(str(answer.version))
    if found and (int(found[1]), int(found[2])) < TRAINER_PYTHON:
        needed = ".".join(map(str, TRAINER_PYTHON))
        sentence = f"the bundled trainer needs Python {needed} or newer, and {name} is "
        sentence += str(answer.version)
        todo = "set another python for the host"
        yield blocking(Check.PYTHON, "python-old", host, "too old", sentence, todo)


def tensorflow(
    host: str,
    name: str,
    answer: PythonAnswer,
    *,
    needed: bool,
    used: bool = True,
    offer: str = "",
) -> Finding:
    """Evaluates TensorFlow for that Python; the bundled trainer has it as `needed`, and nothing
    of a cluster with another framework has it as `used`. `offer` is a Python that has it."""
    version = str(answer.tensorflow)
    if version:
        return passed(Check.TENSORFLOW, host, version, f"TensorFlow {version} for {name}")
    if answer.there:
        sentence = f"TensorFlow is installed for {name}, but its version is unknown"
        return warning(Check.TENSORFLOW, "tensorflow-unversioned", host, "unknown", sentence)
    sentence = f"TensorFlow is not installed for {name}"
    if not (needed or used):
        return passed(Check.TENSORFLOW, host, "not used", sentence)
    todo = f"run {name} -m pip install tensorflow, or set another python for the host"
    if offer:
        todo = f"{_offered(offer)}: that one has TensorFlow"
    sentence += "" if needed else "; a program that imports it will fail"
    make = blocking if needed else warning
    about = (Check.TENSORFLOW, "tensorflow-missing", host, "missing", sentence, todo)
    return make(*about, offer=offer)


def modules(
    host: str, python: str, answer: ModulesAnswer, found: MissingModules, offer: str
) -> Finding:
    """Reports modules that programs import and the interpreter does not have; `offer` is one that
    has them all."""
    names = [module.name for module in found.modules]
    first = found.modules[0]
    shown = ", ".join(names[:_MOST_MODULES]) + (", …" if len(names) > _MOST_MODULES else "")
    place = f"{first.file}, line {first.line}"
    sentence = f"{python} does not have {shown}, which {place}"
    sentence += ", imports" if len(names) == 1 else ", and others import"
    gone = [name for name in names if name in REMOVED]
    if gone and REMOVED[gone[0]] <= (answer.numbers or (3, 0))[1]:
        sentence += f"; Python has no {gone[0]} since 3.{REMOVED[gone[0]]}"
    todo = advice(python, names)
    if offer:
        todo = f"{_offered(offer)}: that one has {'it' if len(names) == 1 else 'them'}"
    brief = f"no {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else "")
    about = (Check.PYTHON, "module-missing", host, brief)
    if not first.certain:
        sentence += "; the program goes on without" if len(names) == 1 else "; it goes on without"
        return warning(*about, sentence, todo, task=found.task.id)
    if found.unless:
        return warning(*about, f"{sentence}, unless {found.unless}", todo, task=found.task.id)
    return blocking(*about, sentence, todo, task=found.task.id, offer=offer)


def syntax(
    host: str, task: TaskId, place: str, why: str, said: str, *, sure: bool, unless: str
) -> Finding:
    """Reports a file that a Python cannot read, which `said` names; it is `sure` that the task's
    program ends with that."""
    sentence = f"{place}: {why} ({said})"
    todo = "correct it, or set another python for the host"
    about = (Check.COMMAND, "script-syntax", host, "not valid")
    if sure and not unless:
        return blocking(*about, sentence, todo, task=task)
    sentence += f", unless {unless}" if unless else ": its imports were not checked"
    return warning(*about, sentence, todo, task=task)


def command(host: str, tasks: Sequence[TaskId], why: str, *, unless: str = "") -> Finding:
    """Reports a command that cannot run; `unless` says what may yet make it run."""
    sentence = cannot_run(tasks, host, why)
    todo = "correct command, python or setup, or install it there"
    if unless:
        sentence += f", unless {unless}"
        return warning(Check.COMMAND, "command-missing", host, "missing", sentence, task=tasks[0])
    return blocking(
        Check.COMMAND, "command-missing", host, "missing", sentence, todo, task=tasks[0]
    )


def commands(host: str, unknown: Sequence[TaskId]) -> Finding:
    """Reports commands that are there; those of the `unknown` tasks were not all looked for."""
    if not unknown:
        return passed(Check.COMMAND, host, "found", "the commands of its tasks are there")
    sentence = f"no program is missing, but not all programs of {_named(unknown)} could be checked"
    return passed(Check.COMMAND, host, "found in part", sentence)


def _named(tasks: Sequence[TaskId]) -> str:
    return ", ".join(map(str, tasks[:4])) + (", …" if len(tasks) > 4 else "")


def _copied(host: str, files: Copied, workdir: Path | None) -> Iterator[Finding]:
    """Reports what is copied to a host."""
    brief = f"{counted(files.files, 'file')}, {size(files.bytes)}"
    what = "data" if workdir is None else str(workdir)
    sentence = f"{brief} are copied to {host}, of {what}"
    if files.bytes < COPY_LARGE:
        yield passed(Check.FILES, host, brief, sentence)
        return
    place, most = files.largest()
    sentence += f"; most are below {place}: {size(most)}" if place else ""
    todo = (
        "leave out what tasks do not need by exclude or .gitignore, or use directory where hosts "
    )
    todo += "have the files already"
    yield warning(Check.FILES, "files-large", host, brief, sentence, todo)


async def copies(
    files: CopiedFiles, plan: Plan, host: HostPlan, name: str
) -> AsyncIterator[Finding]:
    """Reports what is copied to a host, and what is not; what holds for all hosts once. `name` is
    the host that findings are about.

    Raises:
        TfmuxError: a launch would be refused with this sentence.
    """
    copied = await files.of(host)
    for finding in _copied(name, copied, plan.workdir):
        yield finding
    if copied.left_out and copied.left_out not in files.told:
        files.told.add(copied.left_out)
        yield links_left_out(name, copied.left_out)
    for note in copied.notes:
        if note not in files.told:
            files.told.add(note)
            todo = "have git answer here, or name in exclude what is not to be copied"
            yield warning(Check.FILES, "git-silent", name, "git not asked", note, todo)
    others = await asyncio.to_thread(lambda: list(other_files(plan, host, copied)))
    for task, why in others[:MOST_FILES]:
        if why not in files.told:
            files.told.add(why)
            yield file_left_out(name, task, why)
    for task, path in list(above_workdir(plan, host))[:MOST_FILES]:
        if (path, "above") not in files.told:
            files.told.add((path, "above"))
            yield path_above(name, task, path)


def path_above(host: str, task: TaskId, path: str) -> Finding:
    """Reports a path above the copied workdir."""
    sentence = (
        f"{task} names {printable(path)}, which is above the workdir: on {host} it is in the run's "
        "folder, nothing is copied there, and what is written there stays on the host"
    )
    todo = "write below the workdir, or name a directory of the host by its whole path"
    return warning(Check.FILES, "above-workdir", host, "above workdir", sentence, todo)


def refused(host: str, why: str) -> Finding:
    """Reports why nothing would be copied to a host."""
    todo = "correct workdir, data or exclude"
    return blocking(Check.FILES, "files-refused", host, "refused", why, todo)


def links_left_out(host: str, links: Sequence[LeftOut]) -> Finding:
    """Reports links that are not copied."""
    todo = "copy what they lead to into the workdir, or name it in data"
    brief = counted(len(links), "link")
    return warning(Check.FILES, "links-left-out", host, brief, left_out_note(links), todo)


def file_left_out(host: str, task: TaskId, sentence: str) -> Finding:
    """Reports a file that a command names, or a script imports."""
    todo = "take it back in .gitignore (!NAME), name it in data, or make it there with prepare"
    return warning(Check.FILES, "file-left-out", host, "not copied", sentence, todo, task=task)


def directory(host: str, tasks: Sequence[TaskId], why: str) -> Finding:
    """Reports a directory in which tasks of a host cannot start."""
    todo = "make it there, or correct directory"
    sentence = cannot_run(tasks, host, why)
    brief = "no directory"
    return blocking(Check.FILES, "directory-missing", host, brief, sentence, todo, task=tasks[0])


def same_workdir(host: str, workdir: str) -> Finding:
    """Reports a workdir that is copied to a host which has it already."""
    sentence = f"{host} has the workdir {workdir} already, on a file system that it shares with "
    sentence += "this machine, and it is copied there all the same"
    todo = f'to copy nothing write directory = "{workdir}" instead of workdir'
    return warning(Check.FILES, "workdir-shared", host, "shared", sentence, todo)


def mpi(host: str, task: TaskId, problem: str, todo: str, *, sure: bool) -> Finding:
    """Warns of a program with an MPI library; it is `sure` that the program uses it."""
    subject = f"the command of {task}" if sure else f"if the command of {task}"
    about = (Check.COMMAND, "mpi-library", host, "MPI", f"{subject} {problem}", todo)
    return warning(*about, task=task)


def mpi_repeated(host: str, task: TaskId, problem: str, todo: str) -> Finding:
    """Warns of an `mpirun` that several tasks would start."""
    sentence = f"the command of {task} {problem}"
    return warning(Check.COMMAND, "mpi-repeated", host, "MPI", sentence, todo, task=task)


def gpus(host: str, answer: GpusAnswer, promised: int) -> Finding:
    """Evaluates the GPUs; `promised` is their number by the cluster file."""
    rows = answer.gpus
    if answer.why and rows:
        sentence = f"nvidia-smi lists {counted(len(rows), 'GPU')} and says: {answer.why}"
        todo = "see nvidia-smi there; what it does not list cannot be used"
        return warning(Check.GPUS, "gpu-driver", host, f"{len(rows)}, and a fault", sentence, todo)
    if answer.why:
        sentence = f"nvidia-smi fails: {answer.why}; TensorFlow will find no GPU"
        todo = "reload or reinstall the NVIDIA driver"
        return warning(Check.GPUS, "gpu-driver", host, "driver", sentence, todo)
    if promised > len(rows):
        sentence = f"the cluster file expects {promised} GPUs, and the host has {len(rows)}: "
        sentence += "TensorFlow would use the CPU instead"
        brief, todo = f"{len(rows)} of {promised}", "correct gpus, or check the driver"
        return warning(Check.GPUS, "gpus-fewer", host, brief, sentence, todo)
    if not rows:
        return passed(Check.GPUS, host, "none", "no NVIDIA GPU")
    kinds = ", ".join(dict.fromkeys(gpu.name for gpu in rows))
    sentence = f"{len(rows)} × {kinds}, driver {answer.driver}"
    return passed(Check.GPUS, host, f"{len(rows)}, driver {answer.driver}", sentence)


_LESS = 0.9
"""Share of the free memory of the emptiest GPU below which another one has less."""


def given_gpus(host: str, views: Sequence[GpuView], tasks: int) -> Iterator[Finding]:
    """Reports what is wrong with the GPUs that the plan gives to so many tasks: faults, modes,
    processes of others, and less memory than on the others."""
    for gpu in views:
        if gpu.problem or gpu.ecc_errors:
            errors = counted(gpu.ecc_errors or 0, "uncorrectable memory error")
            what = gpu.problem or f"{errors} (ECC) since its driver was loaded"
            sentence = f"GPU {gpu.index} ({gpu.name}): {what}"
            todo = "see nvidia-smi -q there; a reset, or a restart of the host, may help"
            yield warning(Check.GPUS, "gpu-fault", host, f"GPU {gpu.index}: fault", sentence, todo)
        if gpu.mode == "Prohibited":
            sentence = f"GPU {gpu.index} is in the compute mode Prohibited: no program may use it"
            todo = f"nvidia-smi -i {gpu.index} -c DEFAULT on {host}, as root; or use other GPUs"
            yield warning(Check.GPUS, "gpu-mode", host, "prohibited", sentence, todo)
        elif gpu.mode.startswith("Exclusive") and tasks > len(views):
            sentence = f"GPU {gpu.index} is in the compute mode {gpu.mode}: one process alone may "
            sentence += f"use it, and {tasks} tasks share {counted(len(views), 'GPU')}"
            todo = f"nvidia-smi -i {gpu.index} -c DEFAULT on {host}, as root; or start fewer tasks"
            yield warning(Check.GPUS, "gpu-mode", host, "exclusive", sentence, todo)
    full = [gpu for gpu in views if gpu.held]
    if full:
        told = holders(full, None)
        todo = "wait for it, ask its owner, or give the run other GPUs"
        yield warning(Check.GPUS, "gpu-held", host, f"{len(full)} held", told, todo)
    free = {gpu.index: (gpu.memory_total or 0) - (gpu.memory_used or 0) for gpu in views}
    most = max(free.values(), default=0)
    less = [gpu for gpu in views if gpu not in full and free[gpu.index] < _LESS * most]
    if less and not any(gpu.memory_used is None for gpu in views):
        names = ", ".join(f"GPU {gpu.index} has {size(free[gpu.index])} free" for gpu in less[:3])
        more = f" (and {len(less) - 3} more)" if less[3:] else ""
        sentence = f"{names}{more}, and others on this host {size(most)}"
        todo = "the smallest memory limits all ranks: choose a batch for it, or leave it out"
        yield warning(Check.GPUS, "gpu-memory", host, "less memory", sentence, todo)


def missing_gpus(host: str, names: Sequence[str], had: int) -> Iterator[Finding]:
    """Reports GPUs that the file names, and the host does not have."""
    if names:
        which = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        sentence = f"the cluster file names GPU {which}, and nvidia-smi lists no such GPU among "
        sentence += f"its {counted(had, 'GPU')}"
        todo = "write numbers or ids that nvidia-smi -L prints there"
        yield warning(Check.GPUS, "gpu-unknown", host, f"no GPU {names[0]}", sentence, todo)


def cuda(host: str, answer: GpusAnswer, python: PythonAnswer) -> Iterator[Finding]:
    """Reports packages that bring a newer CUDA than the driver runs. Drivers run all minor versions
    of a CUDA that they know, so that the first number counts."""
    wanted, had = (version.partition(".")[0] for version in (python.cuda, answer.cuda))
    if wanted.isdecimal() and had.isdecimal() and int(wanted) > int(had):
        sentence = f"{python.cuda_of} brings CUDA {python.cuda}, and the driver {answer.driver} "
        sentence += f"runs CUDA up to {answer.cuda}: the program will find no GPU"
        todo = f"install a newer driver, or packages for CUDA {had}"
        brief = f"CUDA {answer.cuda}"
        yield warning(Check.GPUS, "gpu-cuda", host, brief, sentence, todo)


def ranks(host: str, wanting: int, had: int, framework: Framework) -> Iterator[Finding]:
    """Reports more ranks on a host than it has GPUs, unless it has none."""
    if sentence := gpu_shortage(host, wanting, had, framework):
        todo = f"write {counted(had, 'task')} on {host}, or gpus = 0 in the job to use the CPU"
        brief = f"{wanting} ranks"
        yield warning(Check.GPUS, "gpus-fewer-than-ranks", host, brief, sentence, todo)


def disks(host: str, answer: DiskSpaceAnswer, *, uses_logdir: bool = True) -> Iterator[Finding]:
    """Evaluates the free space for logs and staged files, once for each file system; a log
    directory that nothing `uses` stops no launch. Nor does a full `/tmp`, which may be small."""
    seen: set[int] = set()
    own, held = answer.disks[0], _held_text(answer)
    for what, path, free, device in answer.disks:
        part = free < LOW_PART * answer.size and device == own[3]
        enough = DISK_FULL if what == TEMPORARY_PLACE else DISK_LOW
        if (free >= enough and not part) or device in seen:
            continue
        seen.add(device)
        brief = f"{size(free)} free"
        share = f" ({100 * free / answer.size:.0f} %)" if part else ""
        sentence, todo = f"{brief}{share} in {path}, which holds {what}", "free some space there"
        if device == own[3] and held:
            sentence += f"; {held}"
            todo += ": `tfmux rm --hosts` frees what ended runs hold"
        full, low = "disk-full", "disk-low"
        if what == LOGDIR_PLACE:
            full, low = "logdir-full", "logdir-low"
            todo += ", or write another logdir"
        if what == TEMPORARY_PLACE:
            yield warning(Check.DISK, "tmp-full", host, brief, sentence, todo)
        elif free < DISK_FULL and (uses_logdir or what != LOGDIR_PLACE):
            yield blocking(Check.DISK, full, host, brief, sentence, todo)
        else:
            todo += " before a long run"
            low = low if free >= DISK_FULL else full
            yield warning(Check.DISK, low, host, brief, sentence, todo)
    if not seen:
        lowest = min(free for what, _, free, _ in answer.disks if what != TEMPORARY_PLACE)
        brief = f"{size(lowest)} free"
        sentence = f"{brief}; {held}: `tfmux rm --hosts` frees it" if held else ""
        if answer.held.bytes >= HELD_TOLD:
            brief += f"; {held}"
        yield passed(Check.DISK, host, brief, sentence)


def _held_text(answer: DiskSpaceAnswer) -> str:
    """`12 ended runs hold 340 GB there`; empty if none does."""
    held = answer.held
    if not held.runs:
        return ""
    verb = "holds" if held.runs == 1 else "hold"
    amount = f"at least {size(held.bytes)}" if held.cut else size(held.bytes)
    return f"{counted(held.runs, 'ended run')} {verb} {amount}"


def memory(host: str, answer: DiskSpaceAnswer, tasks: int) -> Finding:
    """Evaluates the free memory for that many tasks."""
    available, total = answer.memory
    brief = f"{size(available)} free"
    sentence = f"{size(available)} of {size(total)} memory free"
    if available < MEMORY_LOW * tasks:
        sentence += f" for {tasks} tasks; TensorFlow alone takes about half a gigabyte each"
        todo = "stop other programs there, or move tasks to another host"
        return warning(Check.MEMORY, "memory-low", host, brief, sentence, todo)
    return passed(Check.MEMORY, host, brief, sentence)


def clock(host: str, offset: float, round_trip: float) -> Finding:
    """Compares the host's clock with this machine's, to within half a round trip."""
    way = "ahead of" if offset > 0 else "behind"
    sentence = f"its clock is {abs(offset):.1f} s {way} this machine's"
    if abs(offset) > CLOCK_OFF + round_trip:
        todo = "enable time synchronisation there (chrony, systemd-timesyncd)"
        sentence += ": times of logs, files and checkpoints cannot be compared"
        return warning(Check.CLOCK, "clock-off", host, f"{offset:+.0f} s", sentence, todo)
    return passed(Check.CLOCK, host, f"{offset:+.1f} s", sentence)


def ports(
    host: str,
    wanted: Mapping[TaskId, int],
    held: Sequence[PortOwner],
    failed: Mapping[str, str],
    forbidden: Container[int] = (),
) -> Iterator[Finding]:
    """Evaluates the ports of tasks: held by a process, or not allowed to be listened on."""
    tasks = {port: task for task, port in wanted.items()}
    for each in held:
        todo = "end that process, or use another port"
        if each.run:
            todo = f"end that run: tfmux kill {each.run}"
        elif each.account and not each.own:
            todo = "use another port, or auto"
        sentence = each.problem
        brief = f"{each.port} in use"
        task = tasks.get(each.port)
        yield blocking(Check.PORTS, "port-in-use", host, brief, sentence, todo, task=task)
    for text, why in failed.items():
        port = int(text)
        if port in forbidden:
            code, todo = "port-forbidden", "use a port from 1024 to 65535"
        else:
            code, todo = "port-unusable", "use another port, or auto"
        sentence = f"cannot listen on port {port}: {why}"
        brief, task = f"{port}: {why}", tasks.get(port)
        yield blocking(Check.PORTS, code, host, brief, sentence, todo, task=task)
    if not held and not failed:
        numbers = list(tasks)
        shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
        sentence = f"free: {shown}" if wanted else "no fixed ports"
        yield passed(Check.PORTS, host, "free" if wanted else "none", sentence)


def processes(host: str, answer: LimitsAnswer, tasks: int) -> Iterator[Finding]:
    """Reports an account that may not have the processes of an agent and its tasks."""
    free, needed = answer.processes, AGENT_PROCESSES + tasks
    if free is not None and free < needed:
        sentence = f"this account may start {counted(free, 'process', 'processes')} more (ulimit "
        sentence += f"-u), and a run of {counted(tasks, 'task')} needs at least {needed}"
        todo = "end other programs of the account there, or raise nproc in limits.conf"
        yield blocking(Check.AGENT, "processes-limit", host, f"{free} processes", sentence, todo)


def descriptors(host: str, answer: LimitsAnswer, tasks: int) -> Iterator[Finding]:
    """Reports a limit of open files with which not all tasks of the host can start."""
    if not fits_descriptors(answer.files, tasks):
        sentence = f"the hard limit of open files is {answer.files} (ulimit -Hn), and that is too "
        sentence += f"few for {counted(tasks, 'task')}"
        todo = "raise nofile in /etc/security/limits.conf, or in the service that starts the login"
        brief = f"{answer.files} files"
        yield blocking(Check.AGENT, "files-limit", host, brief, sentence, todo)


def argument_missing(host: str, task: TaskId, path: str) -> Finding:
    """Reports a file or directory of this machine that a command names and the host lacks."""
    sentence = f"the command of {task} names {printable(path)}, which is on this machine and not "
    sentence += f"on {host}"
    todo = "copy it into the workdir and name it by its path there, or put it on the host"
    about = (Check.FILES, "argument-missing", host, "not there", sentence, todo)
    return warning(*about, task=task)


def not_forwarded(host: str, task: TaskId, why: str) -> Finding:
    """Warns of a port that cannot be forwarded."""
    sentence = f"{task} cannot be forwarded to this machine: {why}"
    todo = "allow it there, or remove forward and open its address"
    about = (Check.PORTS, "forward-refused", host, "no forward", sentence, todo)
    return warning(*about, task=task)


def leftovers(
    host: str, found: Sequence[Sequence[Any]], known: Container[str]
) -> Iterator[Finding]:
    """Reports processes of runs whose agent is dead, one finding per run; `known` are the runs
    that this machine has launched."""
    runs: dict[str, list[Sequence[Any]]] = {}
    for row in found:
        runs.setdefault(row[0], []).append(row)
    for run, rows in runs.items():
        tasks = ", ".join(dict.fromkeys(row[1] or "an unknown task" for row in rows))
        pids = ", ".join(str(row[2]) for row in rows[:10]) + (", …" if len(rows) > 10 else "")
        todo = f"end them: tfmux kill {run}"
        if run not in known:
            todo += " --file FILE, with its cluster file (another machine launched it)"
        sentence = f"the agent of run {run} is dead, but processes of {tasks} are running: pid "
        sentence += f"{pids} ({rows[0][3]})"
        brief = f"{len(rows)} left"
        yield warning(Check.LEFTOVERS, "leftovers", host, brief, sentence, todo, run=run)
    if not runs:
        yield passed(Check.LEFTOVERS, host, "none", "no processes of dead runs")


def logdir(host: str, answer: LogdirAnswer, *, used: bool = True) -> Iterator[Finding]:
    """Evaluates whether the log directory is writable, and whether it holds a checkpoint; it is
    `used` where a command or a variable names it."""
    path = answer.path
    if answer.why:
        sentence = f"the log directory {path} is not writable"
        if answer.base != path:
            sentence += f" (cannot create a file in {answer.base})"
        todo = "correct logdir or the permissions"
        sentence += f": {answer.why}" + ("" if used else "; no command names it")
        about = (Check.LOGDIR, "logdir-unwritable", host, "not writable", sentence, todo)
        yield blocking(*about) if used else warning(*about)
    if answer.old:
        name, seconds = answer.old
        sentence = f"the log directory {path} has a checkpoint, {age(seconds)} old "
        sentence += (
            f"({posixpath.basename(name)}): a new run would continue from it, or end at once"
        )
        todo = "add {run_id} to logdir, remove the checkpoint, or continue with "
        todo += "tfmux up FILE --resume RUN"
        yield warning(Check.LOGDIR, "logdir-stale", host, "old checkpoint", sentence, todo)
    if not answer.why and not answer.old:
        yield passed(Check.LOGDIR, host, "writable", f"{path} is writable")


def address(host: str, name: str, resolved: Sequence[str]) -> Finding | None:
    """Warns of an address in the public internet; None while it is not known."""
    public = [text for text in resolved or [name] if _is_public(text)]
    if public:
        shown = name if name == public[0] else f"{name} ({public[0]})"
        sentence = f"the cluster address {shown} is public, and TensorFlow's gRPC has no "
        sentence += "authentication: anyone who can connect to it can run code there"
        todo = "use a private address, or restrict access to the cluster's hosts by a firewall"
        return warning(Check.ADDRESS, "address-public", host, "public", sentence, todo)
    if not resolved:
        return None
    return passed(Check.ADDRESS, host, "private", f"{name} is {', '.join(resolved[:3])}")


def own_address(host: str, name: str, resolved: Sequence[str]) -> Iterator[Finding]:
    """Warns of a host that takes its own name for the loopback; `resolved` is what the name means
    there. Where the file itself gives a loopback address, the hosts are one machine."""
    if not resolved or is_loopback(name) or not is_loopback(resolved[0]):
        return
    sentence = f"{name} is {resolved[0]} on {host} itself: a task that listens on its own name "
    sentence += "there is reached by no other host"
    todo = f"correct {name} in /etc/hosts of {host} (Debian writes 127.0.1.1), "
    todo += "or set address to the host's IP address"
    yield warning(Check.ADDRESS, "address-loopback", host, resolved[0], sentence, todo)


def versions(found: Mapping[str, str]) -> Iterator[Finding]:
    """Warns of TensorFlow versions that differ; `found` maps hosts to known versions."""
    counts = Counter(found.values())
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    where = [host for host, version in found.items() if version == usual]
    for host, version in found.items():
        if version != usual:
            sentence = f"TensorFlow is {version} here and {usual} on {', '.join(where[:5])}: their "
            sentence += "gRPC and checkpoints may be incompatible"
            todo = "install the same version on all hosts"
            yield warning(Check.TENSORFLOW, "tensorflow-differs", host, version, sentence, todo)


def restarts(cluster: ClusterModel, check: Check, host: str) -> Iterator[Finding]:
    """Warns of a rule that starts one rank again, in the cell of `check` and `host`."""
    run = cluster.run
    if run.framework.meets and run.on_failure is OnFailure.RESTART:
        where = cluster.where("run", "on_failure")
        sentence = f'{where}: "restart" starts one task again, and the ranks of {run.framework} '
        sentence += "can only start together: the others wait or fail"
        todo = 'write on_failure = "restart-all"'
        yield warning(check, "restart-alone", host, "restart", sentence, todo)


def backgrounds(plan: Plan, host: str, check: Check, cell: str) -> Iterator[Finding]:
    """Warns of commands of a host's cluster tasks that would not stay in the foreground, in the
    cell of `check` and `cell`."""
    found: dict[str, list[TaskId]] = {}
    for task in plan.on_host(host):
        if task.in_cluster and (problem := background_problem(task.argv)):
            found.setdefault(problem, []).append(task.id)
    for problem, tasks in found.items():
        sentence = f"the command of {_named(tasks)} would not stay in the foreground: {problem}"
        about = (check, "command-background", cell, "in the background", sentence)
        yield warning(*about, "start the program itself", task=tasks[0])


def endings(plan: Plan, check: Check, cell: str) -> Iterator[Finding]:
    """Warns of tasks because of which the run would never end by itself, in the cell of `check` and
    `cell`."""
    for found in plan.endless():
        about = (check, "never-ends", cell, "never ends", found.text, found.todo)
        yield warning(*about, task=found.tasks[0])


def shell_words(
    cluster: ClusterModel, plan: Plan, host: str, check: Check, cell: str
) -> Iterator[Finding]:
    """Warns of words in commands and variables of a host's tasks that only a shell would read, in
    the cell of `check` and `cell`."""
    found: dict[ShellText, list[TaskId]] = {}
    jobs: dict[str, list[ShellText]] = {}
    for task in plan.on_host(host):
        job = task.id.job
        if job in cluster.jobs and job not in jobs:  # else `prepare`, which a shell reads
            jobs[job] = list(shell_texts(cluster, job, host))
        for each in jobs.get(job, ()):
            found.setdefault(each, []).append(task.id)
    for each, tasks in found.items():
        sentence = f"of {_named(tasks)}: {each.what}"
        about = (check, "shell-text", cell, "shell text", sentence)
        yield warning(*about, each.todo, task=tasks[0])


def programs_of_tensorflow_1(plan: Plan, host: str, check: Check, cell: str) -> Iterator[Finding]:
    """Warns of scripts of a host's tasks that need `tf1`, in the cell of `check` and `cell`."""
    for task, script, name in version_1_scripts(plan, host):
        sentence = f"{script} is for TensorFlow 1: it uses {name}, and later releases have no such "
        sentence += "name"
        todo = f'write command = ["{{python}}", "{{trainer}}", "tf1", "{script}", …]'
        about = (check, "tensorflow-1", cell, "needs tf1", sentence)
        yield warning(*about, todo, task=task)


def sharers(plan: Plan) -> tuple[str, tuple[str, ...], str]:
    """The chief's host, the hosts that must see its log directory (none where no host must), and
    the reason."""
    cluster = [task for task in plan.tasks if task.in_cluster]
    chief = next((task for task in cluster if task.id == plan.chief), None)
    if chief is None:
        return "", (), ""
    evaluators = [task.host for task in plan.tasks if task.role is Role.EVALUATOR]
    why = "an evaluator reads the chief's checkpoints"
    hosts = evaluators
    if plan.settings.on_failure in (OnFailure.RESTART, OnFailure.RESTART_ALL):
        why = f'on_failure = "{plan.settings.on_failure}" needs a shared one: a restarted task '
        why += "reads the last checkpoint from it"
        hosts = [*(task.host for task in cluster), *evaluators]
    return chief.host, tuple(host for host in dict.fromkeys(hosts) if host != chief.host), why


def sharing(host: str, chief: str, path: str, why: str, *, seen: bool) -> Finding:
    """Reports whether a host sees the chief's log directory."""
    if seen:
        return passed(Check.LOGDIR, host, "shared", f"{path} is the same directory as on {chief}")
    sentence = f"the log directory {path} is not the same as on {chief}, and {why}"
    todo = "put logdir on a disk that all hosts share"
    return warning(Check.LOGDIR, "logdir-not-shared", host, "not shared", sentence, todo)


def _is_public(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_global
    except ValueError:
        return False
