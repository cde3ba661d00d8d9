"""An agent's answers become findings. Pure: no clock, no network."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from ..agent.answers import PortOwner
from ..errors import HostError
from ..hosts.port_owner import owning_run, port_in_use
from .findings import Check, Finding, Severity, blocking, passed, warning

DISK_FULL = 16 * 1024**2
DISK_LOW = 1024**3
MEMORY_LOW = 512 * 1024**2
"""Bytes for each task: about what an imported TensorFlow takes."""
CLOCK_OFF = 2.0
_PLAIN_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "busybox")
_ODD_SHELLS = {"csh": "~/.cshrc", "tcsh": "~/.tcshrc or ~/.cshrc", "fish": "config.fish"}
_FAILED_AT = {
    "name": Check.NAME,
    "tcp": Check.TCP,
    "jump": Check.TCP,
    "ssh": Check.SSH,
    "not": Check.SSH,
    "key": Check.KEY,
    "known": Check.KEY,
    "login": Check.LOGIN,
    "no": Check.LOGIN,
    "shell": Check.SHELL,
    "python": Check.PYTHON,
}
_BRIEF = {
    "name-unresolved": "unresolved",
    "tcp-refused": "refused",
    "tcp-timeout": "no answer",
    "tcp-no-route": "no route",
    "ssh-silent": "silent",
    "ssh-dropped": "drops us",
    "not-ssh": "not SSH",
    "key-unknown": "unknown",
    "key-changed": "CHANGED",
    "login-refused": "refused",
    "login-timeout": "too slow",
    "shell-blocked": "blocks",
    "python-missing": "not there",
    "python-old": "too old",
}


def failure(error: HostError) -> Finding:
    """The step at which a host could not be reached."""
    if error.code == "key-file":
        check = Check.LOGIN
    else:
        check = _FAILED_AT.get(error.code.partition("-")[0], Check.AGENT)
    brief = _BRIEF.get(error.code, "failed")
    return blocking(check, error.code, error.host, brief, error.what, error.todo)


def unanswered(check: Check, severity: Severity, error: HostError) -> Finding:
    """A question that got no answer: a disk or a program there hangs."""
    sentence = f"{check} could not be looked at: {error.what}"
    todo = "look whether a network disk or a driver hangs there"
    return Finding(severity, check, "no-answer", error.host, "no answer", sentence, todo)


def shell(host: str, account: Mapping[str, Any], noise: bytes) -> Iterator[Finding]:
    """The login shell, and what its start-up files print."""
    path = str(account["shell"])
    name = posixpath.basename(path)
    said = noise.decode(errors="replace").strip().splitlines()
    if name in _ODD_SHELLS:
        yield warning(
            Check.SHELL,
            "shell-odd",
            host,
            name,
            f"the login shell of {account['user']} is {path}, which is no POSIX shell: tfmux "
            f"copes with it, but reads PATH and variables from {_ODD_SHELLS[name]} alone",
            "see that PATH and the like are set there, or write them in env of the host",
        )
    elif name not in _PLAIN_SHELLS:
        yield warning(
            Check.SHELL,
            "shell-odd",
            host,
            name,
            f"the login shell of {account['user']} is {path}, which tfmux does not know; it ran "
            "our command all the same",
        )
    if said:
        shown = said[0][:60]
        yield warning(
            Check.SHELL,
            "shell-noise",
            host,
            "prints text",
            f"the start-up files of the login shell print text ('{shown}') in sessions without a "
            "terminal: tfmux skips it, scp, sftp and rsync fail of it",
            "let ~/.bashrc or its like print only in interactive sessions",
        )
    if name in _PLAIN_SHELLS and not said:
        yield passed(Check.SHELL, host, name, f"the login shell is {path}")


def proxies(host: str, found: Mapping[str, str], bypassed: Sequence[str]) -> Finding:
    """Proxy variables make gRPC ask a proxy for the other tasks."""
    if not found:
        return passed(Check.PROXY, host, "none", "no proxy variable is set")
    names = ", ".join(found)
    hosts = ", ".join(bypassed[:4]) + (", …" if len(bypassed) > 4 else "")
    return warning(
        Check.PROXY,
        "proxy-set",
        host,
        "set",
        f"{names} is set: TensorFlow's gRPC would ask the proxy for the other tasks; tfmux puts "
        f"the cluster's hosts ({hosts}) into no_proxy for its tasks",
        "nothing, unless a task builds its environment itself; else unset it in env",
    )


def interpreter(host: str, name: str, answer: Mapping[str, Any]) -> Finding:
    """The Python that runs the tasks."""
    if "failed" in answer:
        return blocking(
            Check.PYTHON,
            "python-broken",
            host,
            "fails",
            f"{name} does not run: {answer['failed']}",
            "correct python of the host, or setup",
        )
    sentence = f"{name} is Python {answer['version']} ({answer['executable']})"
    return passed(Check.PYTHON, host, str(answer["version"]), sentence)


def tensorflow(host: str, name: str, answer: Mapping[str, Any], *, needed: bool) -> Finding:
    """TensorFlow beside that Python; `needed` by the trainer that comes with tfmux."""
    version = str(answer["tensorflow"])
    if version:
        return passed(Check.TENSORFLOW, host, version, f"TensorFlow {version} for {name}")
    if answer["there"]:
        sentence = f"TensorFlow is there for {name}, but does not say which version it is"
        return warning(Check.TENSORFLOW, "tensorflow-unversioned", host, "unknown", sentence)
    sentence = f"TensorFlow is not installed for {name}"
    todo = f"{name} -m pip install tensorflow, or another python for the host"
    if needed:
        return blocking(Check.TENSORFLOW, "tensorflow-missing", host, "missing", sentence, todo)
    sentence += "; a program that imports it will fail"
    return warning(Check.TENSORFLOW, "tensorflow-missing", host, "missing", sentence, todo)


def gpus(host: str, answer: Mapping[str, Any], promised: int) -> Finding:
    """The GPUs; `promised` is what the cluster file gives the host or its tasks."""
    rows = answer["gpus"]
    if answer["why"]:
        return warning(
            Check.GPUS,
            "gpu-driver",
            host,
            "driver",
            f"nvidia-smi is there and fails: {answer['why']}",
            "reload or reinstall the NVIDIA driver; until then TensorFlow sees no GPU",
        )
    if promised > len(rows):
        return warning(
            Check.GPUS,
            "gpus-fewer",
            host,
            f"{len(rows)} of {promised}",
            f"the cluster file counts on {promised} GPUs, and the host has {len(rows)}: "
            "TensorFlow would go on without, on the CPU",
            "correct gpus, or look at the driver",
        )
    if not rows:
        return passed(Check.GPUS, host, "none", "no NVIDIA GPU")
    kinds = ", ".join(dict.fromkeys(row[1] for row in rows))
    sentence = f"{len(rows)} × {kinds}, driver {rows[0][2]}"
    return passed(Check.GPUS, host, f"{len(rows)}, driver {rows[0][2]}", sentence)


def disks(host: str, answer: Mapping[str, Any]) -> Iterator[Finding]:
    """Room for logs and staged files, and in the log directories; a file system once."""
    seen: set[int] = set()
    for what, path, free, device in answer["disks"]:
        if free >= DISK_LOW or device in seen:
            continue
        seen.add(device)
        full = free < DISK_FULL
        yield (blocking if full else warning)(
            Check.DISK,
            "disk-full" if full else "disk-low",
            host,
            f"{size(free)} free",
            f"{size(free)} are free in {path}, where {what} lies",
            "make room there" if full else "make room there before a long run",
        )
    if not seen:
        lowest = min(free for _, _, free, _ in answer["disks"])
        yield passed(Check.DISK, host, f"{size(lowest)} free")


def memory(host: str, answer: Mapping[str, Any], tasks: int) -> Finding:
    """Memory for as many tasks."""
    available, total = answer["memory"]
    brief = f"{size(available)} free"
    sentence = f"{size(available)} of {size(total)} memory are free"
    if available < MEMORY_LOW * tasks:
        sentence += f" for {tasks} tasks; TensorFlow alone takes about half a gigabyte each"
        todo = "end what else runs there, or move tasks"
        return warning(Check.MEMORY, "memory-low", host, brief, sentence, todo)
    return passed(Check.MEMORY, host, brief, sentence)


def clock(host: str, offset: float, round_trip: float) -> Finding:
    """The host's clock beside this machine's, known to half a round trip."""
    sentence = f"its clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} ours"
    if abs(offset) > CLOCK_OFF + round_trip:
        todo = "switch time synchronisation on there (chrony, systemd-timesyncd)"
        sentence += ": times in logs, of files and of checkpoints will not fit together"
        return warning(Check.CLOCK, "clock-off", host, f"{offset:+.0f} s", sentence, todo)
    return passed(Check.CLOCK, host, f"{offset:+.1f} s", sentence)


def ports(
    host: str,
    wanted: Sequence[int],
    held: Sequence[PortOwner],
    failed: Mapping[str, str],
    forbidden: Container[int] = (),
) -> Iterator[Finding]:
    """Ports of tasks that somebody holds, or on which we may not listen."""
    for each in held:
        run = owning_run(each)
        todo = f"end that run: tfmux kill {run}" if run else "end it, or write another port"
        sentence = port_in_use(each)
        brief = f"{each.port} in use"
        yield blocking(Check.PORTS, "port-in-use", host, brief, sentence, todo)
    for port, why in failed.items():
        if int(port) in forbidden:
            code, todo = "port-forbidden", "write a port from 1024 on"
        else:
            code, todo = "port-unusable", "write another port, or auto"
        sentence = f"nothing can listen on port {port}: {why}"
        yield blocking(Check.PORTS, code, host, f"{port}: {why}", sentence, todo)
    if not held and not failed:
        shown = ", ".join(map(str, wanted[:8])) + (", …" if len(wanted) > 8 else "")
        sentence = f"free: {shown}" if wanted else "none is needed"
        yield passed(Check.PORTS, host, "free" if wanted else "none", sentence)


def leftovers(
    host: str, found: Sequence[Sequence[Any]], known: Container[str]
) -> Iterator[Finding]:
    """Processes of runs whose agent is dead, a finding a run; `known` are the runs that this
    machine has launched."""
    runs: dict[str, list[Sequence[Any]]] = {}
    for row in found:
        runs.setdefault(row[0], []).append(row)
    for run, rows in runs.items():
        tasks = ", ".join(dict.fromkeys(row[1] or "an unknown task" for row in rows))
        pids = ", ".join(str(row[2]) for row in rows[:10]) + (", …" if len(rows) > 10 else "")
        todo = f"end them: tfmux kill {run}"
        if run not in known:
            todo += " --file FILE, with its cluster file: another machine has launched it"
        yield Finding(
            Severity.WARN,
            Check.LEFTOVERS,
            "leftovers",
            host,
            f"{len(rows)} left",
            f"the run {run} is dead, and processes of its {tasks} still live: pid {pids} "
            f"({rows[0][3]})",
            todo,
            run,
        )
    if not runs:
        yield passed(Check.LEFTOVERS, host, "none", "nothing of a dead run is left")


def logdir(host: str, answer: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the log directory can be written, and what lies in it."""
    path = answer["path"]
    if answer["why"]:
        sentence = f"the log directory {path} cannot be written"
        if answer["base"] != path:
            sentence += f" (no file can be made in {answer['base']})"
        todo = "correct logdir, or the permissions there"
        sentence += f": {answer['why']}"
        yield blocking(Check.LOGDIR, "logdir-unwritable", host, "not writable", sentence, todo)
    if answer["old"]:
        name, age = answer["old"]
        yield warning(
            Check.LOGDIR,
            "logdir-stale",
            host,
            "old checkpoint",
            f"the log directory {path} holds a checkpoint, {_age(age)} old "
            f"({posixpath.basename(name)}): a new run would go on from it, or end at once",
            "write {run_id} into logdir, remove it, or go on with tfmux up --resume RUN",
        )
    if not answer["why"] and not answer["old"]:
        yield passed(Check.LOGDIR, host, "writable", f"{path} can be written")


def address(host: str, name: str, resolved: Sequence[str]) -> Finding | None:
    """A task's address that the whole internet may reach; None where it is not known yet."""
    public = [text for text in resolved or [name] if _is_public(text)]
    if public:
        shown = name if name == public[0] else f"{name} ({public[0]})"
        return warning(
            Check.ADDRESS,
            "address-public",
            host,
            "public",
            f"the cluster address {shown} is public, and TensorFlow's gRPC has no "
            "authentication: whoever reaches its port can run code there",
            "write a private address, or see that a firewall lets only the cluster's hosts in",
        )
    if not resolved:
        return None
    return passed(Check.ADDRESS, host, "private", f"{name} is {', '.join(resolved[:3])}")


def size(count: float) -> str:
    """`812 MB`, `1.2 GB`."""
    unit = "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, larger
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


def _is_public(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_global
    except ValueError:
        return False


def _age(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "just now" if seconds < 0 else f"{seconds:.0f} seconds"
