"""Executables: whether a program can be started, and if not, why, as values.

Before a launch the preflight asks this, and when a start has failed the agent does. Both look at
the file, at the interpreter in its first line and at the `PATH` on the host.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from contextlib import suppress
from typing import Mapping, NamedTuple, Sequence

SHELL_FILE = "TFMUX_SHELL_FILE"
"""Variable with the file in which our shells in front of a task leave its directory and `PATH`."""
PROGRAM_SECONDS = 30.0
"""Time for a program of a host to answer, such as an interpreter."""
HEAD_BYTES = 256
"""Bytes at the beginning of a file in which the kernel looks for an interpreter."""
MOST_OF_WORD = 128 * 1024
"""Bytes of a single argument, or of a variable with its name, that the kernel takes."""
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "csh", "tcsh", "fish")
"""Names of shells."""
_ELF_BYTES = 4096
_LONGEST = 1000
"""Characters of a `PATH` that are told."""
DEFAULT_PATH = os.defpath
"""Where programs are looked for without a `PATH`."""
_MACHINES = {
    3: "x86 (32 bits)",
    8: "MIPS",
    20: "PowerPC (32 bits)",
    21: "ppc64le",
    22: "s390x",
    40: "ARM (32 bits)",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
_RUNS_TOO = {62: (3,), 183: (40,)}
"""Machines whose programs many kernels of another one run."""
_SYSTEMS = {
    b"MZ": "Windows",
    b"\xcf\xfa\xed\xfe": "macOS",
    b"\xca\xfe\xba\xbe": "macOS",
    b"\xce\xfa\xed\xfe": "macOS",
}


class ProgramProblem(NamedTuple):
    """Reason for which a program cannot be started."""

    kind: str
    """One of `KINDS`."""
    file: str
    """The file, or the name that was looked for in `PATH`."""
    about: str = ""
    """What the kind says besides: a `PATH`, a directory, a processor, a size."""
    script: str = ""
    """The script whose first line names the file as its interpreter."""


KINDS = {
    "not-in-path",  # about: the PATH
    "missing",
    "dangling",  # about: where the link leads
    "directory",
    "not-executable",
    "closed",  # about: the directory that may not be entered
    "noexec",  # about: the mount point
    "text",
    "bom",
    "carriage-return",  # about: the interpreter without it
    "no-interpreter",
    "env-words",  # about: the words that env takes for one name
    "empty",
    "machine",  # about: its processor
    "system",  # about: its system
    "loader",  # about: the loader that it needs
    "long-word",  # about: the bytes of the longest one
    "long-words",  # about: the bytes of all
    "no-directory",
    "not-a-directory",
    "closed-directory",  # about: the directory that may not be entered
}


def program_problem(
    name: str, path: str | None, folder: str = "/", *, by_shell: bool = False
) -> ProgramProblem | None:
    """Reason for which a program cannot be started; None if it can. Of a script the first line is
    read; a shell runs one that has none.

    `path` is the `PATH` on which it is looked for, None for this process's own; a relative name
    with a slash starts from `folder`.
    """
    if path is None:
        path = os.environ.get("PATH", DEFAULT_PATH)
    problem, file = _find(name, path, folder)
    if problem:
        return problem
    problem = _file_problem(file, by_shell=by_shell)
    if problem:
        return problem
    problem, interpreter = first_line(_head(file, HEAD_BYTES), file, by_shell=by_shell)
    if interpreter and not problem:
        problem, found = _find(interpreter, path, folder)
        problem = problem or _file_problem(found, by_shell=False)
        return problem and problem._replace(script=file)
    return problem


def find_program(name: str, path: str, folder: str = "/") -> str:
    """The file of a program; empty where there is none that can be executed."""
    problem, file = _find(name, path, folder)
    return "" if problem else file


def directory_problem(path: str) -> ProgramProblem | None:
    """Reason for which no program can start in a directory; None if it can."""
    closed = _closed(path)
    if closed:
        return ProgramProblem("closed-directory", path, closed)
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return ProgramProblem("not-a-directory", path)
    except (FileNotFoundError, NotADirectoryError):
        return ProgramProblem("no-directory", path)
    except OSError:
        return None
    return None if os.access(path, os.X_OK) else ProgramProblem("closed-directory", path, path)


def words_problem(argv: Sequence[str], env: Mapping[str, str]) -> ProgramProblem | None:
    """Reason for which the kernel does not take the words and variables of a program."""
    texts = [("", word) for word in argv] + [(name, f"{name}={env[name]}") for name in env]
    sizes = [(len(text.encode(errors="surrogateescape")) + 1, name) for name, text in texts]
    size, name = max(sizes, default=(0, ""))
    if size > MOST_OF_WORD:
        return ProgramProblem("long-word", name, str(size))
    return None


def start_problem(
    error: OSError, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, entered: bool
) -> ProgramProblem | None:
    """Reason for which a program was not started, by what is found after the kernel has refused;
    None where nothing is. `entered`: its directory had been entered."""
    if not entered:
        return directory_problem(cwd)
    if error.errno == errno.E2BIG:
        total = sum(len(text) + 9 for text in (*argv, *env.values()))
        return words_problem(argv, env) or ProgramProblem("long-words", "", str(total))
    return bounded(program_problem(argv[0], env.get("PATH", DEFAULT_PATH), cwd))


def bounded(problem: ProgramProblem | None) -> ProgramProblem | None:
    """A problem whose texts are not too long for a message."""
    return problem and ProgramProblem(*(text[:_LONGEST] for text in problem))


def _find(name: str, path: str, folder: str) -> tuple[ProgramProblem | None, str]:
    """Reason for which there is no such program, and its file, as `execvp` looks for it."""
    if "/" in name:
        while name.startswith("./"):
            name = name[2:].lstrip("/")
        whole = os.path.join(folder, name)
        return _not_found(whole), whole
    refused = None
    for place in path.split(os.pathsep):
        file = os.path.join(folder, place, name)
        problem = _not_found(file)
        if problem is None:
            return None, file
        if problem.kind not in ("missing", "directory") and refused is None:
            refused = problem
    return refused or ProgramProblem("not-in-path", name, path), name


def _not_found(file: str) -> ProgramProblem | None:
    """Reason for which a path leads to no file that may be executed."""
    try:
        mode = os.stat(file).st_mode
    except PermissionError:
        return ProgramProblem("closed", file, _closed(file) or os.path.dirname(file))
    except OSError:
        with suppress(OSError):
            if os.path.islink(file):
                return ProgramProblem("dangling", file, os.readlink(file))
        return ProgramProblem("missing", file)
    if stat.S_ISDIR(mode):
        return ProgramProblem("directory", file)
    if os.access(file, os.X_OK):
        return None
    mount = _noexec(file) if mode & 0o111 else ""
    return (
        ProgramProblem("noexec", file, mount) if mount else ProgramProblem("not-executable", file)
    )


def _closed(file: str) -> str:
    """The first directory on the way to a file that may not be entered."""
    place = "/"
    for part in os.path.dirname(os.path.abspath(file)).split("/")[1:]:
        try:
            if not os.access(place, os.X_OK) and os.path.isdir(place):
                return place
            place = os.path.join(place, part)
            os.stat(place)
        except PermissionError:
            return os.path.dirname(place)
        except OSError:
            return ""
    return "" if os.access(place, os.X_OK) or not os.path.isdir(place) else place


def _noexec(file: str) -> str:
    """The mount point of a file from which no program may be run; empty where programs may."""
    try:
        if not os.statvfs(file).f_flag & os.ST_NOEXEC:
            return ""
        place = os.path.realpath(file)
        device = os.stat(place).st_dev
        while place != "/" and os.stat(os.path.dirname(place)).st_dev == device:
            place = os.path.dirname(place)
        return place
    except OSError:
        return ""


def _file_problem(file: str, *, by_shell: bool) -> ProgramProblem | None:
    """Reason for which the kernel would not run a file that may be executed."""
    mount = _noexec(file)
    if mount:
        return ProgramProblem("noexec", file, mount)
    try:
        if os.stat(file).st_size == 0 and not by_shell:
            return ProgramProblem("empty", file)
    except OSError:
        return None
    head = _head(file, _ELF_BYTES)
    for magic, system in _SYSTEMS.items():
        if head.startswith(magic):
            return None if _has_handlers() else ProgramProblem("system", file, system)
    return _elf_problem(file, head) if head.startswith(b"\x7fELF") else None


def _elf_problem(file: str, head: bytes) -> ProgramProblem | None:
    """Reason for which a compiled program is none of this host's."""
    here = _machine(_head("/proc/self/exe", 20))
    machine = _machine(head)
    foreign = bool(here and machine) and machine != here
    if foreign and machine not in _RUNS_TOO.get(here, ()) and not _has_handlers():
        return ProgramProblem("machine", file, _MACHINES.get(machine, f"number {machine} of ELF"))
    loader = "" if foreign else _loader(head)
    return ProgramProblem("loader", file, loader) if loader and not os.path.exists(loader) else None


def _machine(head: bytes) -> int:
    if len(head) < 20 or head[5] not in (1, 2):
        return 0
    return int(struct.unpack(("<", ">")[head[5] - 1] + "H", head[18:20])[0])


def _loader(head: bytes) -> str:
    """The loader that a program for 64 bits names; empty where none is found."""
    with suppress(struct.error, IndexError, ValueError):
        if head[4] != 2:
            return ""
        order = ("<", ">")[head[5] - 1]
        (table,) = struct.unpack_from(order + "Q", head, 32)
        size, count = struct.unpack_from(order + "HH", head, 54)
        for number in range(min(count, 64)):
            kind, _, offset, _, _, length = struct.unpack_from(
                order + "IIQQQQ", head, table + number * size
            )
            if kind == 3:  # PT_INTERP
                name = head[offset : offset + min(length, 256)].rstrip(b"\0")
                return os.fsdecode(name) if name.startswith(b"/") and b"\0" not in name else ""
    return ""


def _has_handlers() -> bool:
    """Whether the kernel has been given interpreters for programs of other machines."""
    try:
        return bool(set(os.listdir("/proc/sys/fs/binfmt_misc")) - {"register", "status"})
    except OSError:
        return False


def _head(file: str, size: int) -> bytes:
    with suppress(OSError), open(file, "rb") as opened:  # it may be executed, and not read
        return opened.read(size)
    return b""


def first_line(
    head: bytes, file: str, *, by_shell: bool = False
) -> tuple[ProgramProblem | None, str]:
    """What is wrong with the first line of a program, and the interpreter in it, by its path or the
    name behind `env`; neither for what is no script. A shell runs one without an interpreter
    itself."""
    bare = head[3:] if head.startswith(b"\xef\xbb\xbf") else head
    if not bare.startswith(b"#!"):
        text = bool(head.strip()) and b"\0" not in head and not by_shell
        return ProgramProblem("text", file) if text else None, ""
    if bare is not head:
        return ProgramProblem("bom", file), ""
    line, newline, _ = head[2:].partition(b"\n")
    words = line.decode(errors="surrogateescape").strip(" \t\r").split(None, 1)
    if line.endswith(b"\r"):
        name = words[-1].split()[-1] if words else ""
        return ProgramProblem("carriage-return", file, name), ""
    if not newline and len(head) == HEAD_BYTES:
        return None, ""  # the kernel cuts it off
    if not words:
        return ProgramProblem("no-interpreter", file), ""
    if os.path.basename(words[0]) == "env" and len(words) > 1:
        return _behind_env(words[1], file)
    return None, words[0] if words[0].startswith("/") else ""


def _behind_env(text: str, file: str) -> tuple[ProgramProblem | None, str]:
    """As `first_line`, of what stands behind `env`: the kernel passes it on as one argument."""
    if not text.startswith("-") and len(text.split()) > 1:
        return ProgramProblem("env-words", file, text), ""
    words = text.split()
    name = words[1] if words[0] == "-S" and len(words) > 1 else words[0]
    return None, "" if "=" in name or name.startswith("-") else name
