"""Folder of a run on a host, of mode 0700, and its socket in a place local to the host.

Homes are often one NFS share for all hosts, so the folder's name holds the run *and* the host,
and the socket never lies in it.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import json
import math
import os
import re
import stat
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, Mapping, NamedTuple, Sequence

from .threads import error_text, full_disk

try:  # as `random` does: `hashlib` loads all of OpenSSL
    from _sha2 import sha256  # type: ignore[import-not-found]  # since Python 3.12
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256

_TEMPORARY = "/tmp"
_LOCK_SECONDS = 0.5
_STAYS = {"results", "stage", "stage.index", "stage.prepared"}
"""What may stay of a run's folder when its agent has removed it."""
ABOVE = "above-workdir"
"""What `..` is called in the paths of results, where a task has written above its workdir."""
OWN = {"agent", "began", "died", "ended", "exit", "logs", "results", "shells", "stage", "tools"}
"""First parts of the names that tfmux's own files have in a run's folder."""
_REBOOTED = "the host has rebooted"
_SEVERAL = "several"
"""In the place of a machine: no boot of a single one ends the doubt."""
_AGENT_DIED = "the agent died"
"""How an agent ended that could not write it down; its watchdog may say why."""


class FolderError(Exception):
    """A folder is somebody else's, or nothing can be written anywhere."""


def private(path: str) -> str:
    """Makes a folder that only we may enter, or checks that it is one.

    Raises:
        FolderError: it is a link, belongs to another user, or cannot be made.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass  # checked below, as ours from an earlier run would be
        info = os.lstat(path)
    except OSError as error:
        raise FolderError(error_text(error)) from error
    if not stat.S_ISDIR(info.st_mode):
        raise FolderError(f"{path} is not a directory (a link or a file is in its place)")
    if info.st_uid != os.getuid():
        raise FolderError(f"{path} belongs to another user (uid {info.st_uid})")
    if stat.S_IMODE(info.st_mode) & 0o077:
        os.chmod(path, 0o700)
    return path


def local_folder() -> str:
    """The user's folder for sockets on this host: `/tmp/tfmux-UID`, or `/tmp/tfmux-UID-RANDOM`
    where somebody else has made that first. It is found again by its name and its owner, so nobody
    can lock us out of it or put another in its place. Not in `$XDG_RUNTIME_DIR`: that goes with
    the user's last login here, and agents and launchers stay.

    Raises:
        FolderError: it cannot be made.
    """
    try:
        found = _own_folders()
        if found:
            return private(found[0])
        directory = os.open(_TEMPORARY, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Of two that come at once, both must find the same. It is a folder of everybody, and
            # somebody else may not let go of it.
            lock_within(directory, _LOCK_SECONDS)
            found = _own_folders()
            if found:
                return private(found[0])
            path = os.path.join(_TEMPORARY, f"tfmux-{os.getuid()}")
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                path += f"-{os.urandom(6).hex()}"
                os.mkdir(path, 0o700)
            return path
        finally:
            os.close(directory)
    except OSError as error:
        why = error.strerror or ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why += f": {full_disk(_TEMPORARY) or 'a quota'}; free some there"
        elif error.errno == errno.EROFS:
            why += "; have it mounted for writing, or in a container as tmpfs"
        raise FolderError(f"the agent's socket needs {_TEMPORARY}: {why}") from error


def _own_folders() -> list[str]:
    name = re.compile(rf"tfmux-{os.getuid()}(-\w+)?")
    with os.scandir(_TEMPORARY) as listing:
        return sorted(
            entry.path
            for entry in listing
            if name.fullmatch(entry.name)
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.getuid()
        )


def lock_within(descriptor: int, seconds: float) -> bool:
    """Locks an open file or folder; False where somebody else has had it locked for so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)


def lock_file(path: str, seconds: float = math.inf) -> int:
    """A descriptor of a file, made if need be, that is locked; after so many seconds it may not be.

    Who had it locked before may have removed it meanwhile: then a new one is made and locked.

    Raises:
        OSError: it is a link, or nothing can be written there.
    """
    deadline = time.monotonic() + seconds
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        got = lock_within(descriptor, deadline - time.monotonic())
        with suppress(FileNotFoundError):
            if not got or os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


class Word(enum.Enum):
    """What is known of the end of an earlier agent of the run on this host."""

    PROVEN = "nothing of it can live"
    UNPROVEN = "it, or its watchdog, has ended and had no proof"
    NONE = "both have ended without a word"
    AWAITED = "its watchdog has not ended, and may have a word to leave"

    @property
    def lasts(self) -> bool:
        """Only a boot ends this doubt."""
        return self in (Word.UNPROVEN, Word.NONE)


class Before(NamedTuple):
    """An earlier agent of the run on this host. `began` names it; `text` says how it ended (empty:
    there was none), `tasks` are the facts of its attempts, `left` names the processes that it could
    not end (pid, start time, task), `signalled` counts those that its kills of everything have
    signalled."""

    word: Word
    began: str = ""
    text: str = ""
    tasks: tuple[dict[str, Any], ...] = ()
    left: tuple[tuple[int, int, str], ...] = ()
    signalled: int = 0


class Folders:
    """The places of one run on this host. `failure` says why an engine could not start the agent:
    only bridges can tell it anybody. A watchdog keeps `watch` locked as long as it lives, and has
    its pid and start time in there. `began` names the boot and the agent that began; `end` is one
    line that the agent has left for the next one (`write_end`), `ended` its watchdog's word, and
    `died` the reason; agents of other versions read all of these. `leaving` is there from when the
    agent begins to move results until it has gone."""

    def __init__(self, run_id: str, host: str, logs: str | None, environ: dict[str, str]) -> None:
        name = f"{run_id}.{host}"
        self.local = local_folder()
        digest = _digest(run_id, host)
        self.socket = os.path.join(self.local, digest + ".sock")
        self.lock = os.path.join(self.local, digest + ".lock")
        self.watch = os.path.join(self.local, digest + ".watch")
        self.failure = os.path.join(self.local, digest + ".failed")
        self.home = os.path.expanduser("~")
        state = environ.get("XDG_STATE_HOME") or os.path.join(self.home, ".local", "state")
        base = self._writable(os.path.join(state, "tfmux"), "state")
        self._cache = environ.get("XDG_CACHE_HOME") or os.path.join(self.home, ".cache")
        self.run = os.path.join(base, name)
        self.logs = logs or os.path.join(self.run, "logs")
        self.began = os.path.join(self.run, "began")
        self.end = os.path.join(self.run, "exit")
        self.ended = os.path.join(self.run, "ended")
        self.died = os.path.join(self.run, "died")
        self._beginning = ""
        self.errors = os.path.join(self.run, "agent.log")
        self.stage = os.path.join(self.run, "stage")
        self.leaving = os.path.join(self.run, "stage.leaving")
        self.results = os.path.join(self.run, "results")
        self.tools = os.path.join(self.run, "tools")
        self.shells = os.path.join(self.run, "shells")

    def make(self) -> bool:
        """Makes the run's folder, for an agent that has the run's address on this host. Returns
        whether there was none, but for what `remove` leaves of a proven end: no agent was here
        before of which anything may live.

        Raises:
            FolderError: it cannot be made.
        """
        try:
            found = set(os.listdir(self.run))
            new = bool(found) and found <= _STAYS
        except FileNotFoundError:
            new = True
        except OSError:
            new = False
        private(self.run)
        if os.path.dirname(self.logs) == self.run:
            private(self.logs)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(self.errors, flags, 0o600))
        except OSError as error:
            raise FolderError(error_text(error)) from error
        return new

    def check_local(self) -> None:
        """Tries whether an agent's files can be made in the user's folder for sockets. They may
        stay empty: a disk that has an inode for each, and no room, stops no agent.

        Raises:
            FolderError: they cannot.
        """
        made: list[str] = []
        try:
            for path in (self.lock, self.watch, self.socket):
                if not os.path.lexists(path):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    os.close(os.open(f"{path}.{os.getpid()}", flags, 0o600))
                    made.append(f"{path}.{os.getpid()}")
        except OSError as error:
            raise FolderError(f"the agent's files cannot be made: {error_text(error)}") from error
        finally:
            for path in made:
                _unlink(path)

    def write_tools(self, tools: Mapping[str, str]) -> None:
        """Writes the scripts that tasks run or import here; on a full disk a task that needs one
        says that it is not there."""
        with suppress(OSError):
            for name, text in tools.items():
                path = os.path.join(self.tools, name)
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                _write(path, text)

    def begin(self, new: bool, alone: bool = True) -> Before:
        """Takes the run's folder for an agent that begins. Nothing of an earlier one's can live
        where there was none (the folder is `new`), its end was proven, or the machine has booted
        since. An agent is not `alone` where the watchdog of the earlier one has not ended. Several
        machines to which one name leads may share the folder: what one of them has left, no boot of
        another ends.

        What was started without that proof may have left no mark. No later agent can know better,
        so the doubt stays with the folder.

        Raises:
            FolderError: the proof of the earlier end cannot be taken away.
        """
        began, end = _read(self.began), _read_end(self.end)
        rebooted = booted_since(began)
        word = Word.PROVEN if new or rebooted else self.word(began, alone)
        try:
            _unlink(self.end)
        except OSError as error:
            raise FolderError(f"{self.end}: {error.strerror}") from error
        # A proof is about this beginning alone: the watchdog of an earlier agent may write its own
        # much later.
        machine = machine_id()
        if word is not Word.PROVEN and _machine_of(began) not in ("", machine):
            machine = _SEVERAL
        self._beginning = f"{boot_id()} {os.urandom(8).hex()} {machine}"
        with suppress(OSError):  # a full disk: the next agent has a doubt too many, not one too few
            _write(self.began, self._beginning)
        if not began and not end:
            return Before(word)
        tasks, left = tuple(end.get("tasks", ())), () if rebooted else self._left(end)
        signalled = end.get("signalled")
        signalled = signalled if isinstance(signalled, int) else 0
        text = str(end.get("text", ""))
        if rebooted:
            text = f"{text}; {_REBOOTED} since" if text else _REBOOTED
        text = text or _died(self._ended(began)[1])
        return Before(word, began, text, tasks, left, signalled)

    def word(self, began: str, alone: bool) -> Word:
        """What the agent that `began`, or its watchdog, has left to say of its end."""
        end, (ended, _) = _read_end(self.end), self._ended(began)
        if began and began in (end.get("proves"), ended):
            return Word.PROVEN
        if not alone:
            return Word.AWAITED
        return Word.UNPROVEN if end or ended else Word.NONE

    def _ended(self, began: str) -> tuple[str, str]:
        """What the watchdog of the agent that `began` has written: its proof, or that there is
        none, and why the agent died."""
        proof = _read(self.ended)
        if not began or not proof.startswith(began):
            return "", ""
        whose, _, why = _read(self.died).partition("\n")
        return proof, why if whose == began else ""

    @property
    def last_words(self) -> str:
        """How the last agent has ended, as far as it or its watchdog has written it down."""
        text = str(_read_end(self.end).get("text", ""))
        why = self._ended(_read(self.began))[1]
        return text or (why and _died(why))

    def in_doubt(self) -> bool:
        """Whether something of an agent that is not there any more may live, and nobody can know
        before the machine boots."""
        try:
            found = set(os.listdir(self.run))
        except FileNotFoundError:
            return False
        began = _read(self.began)
        if (found and found <= _STAYS) or booted_since(began):
            return False
        with suppress(OSError):  # its watchdog has left none
            watch = os.open(self.watch, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if not lock_within(watch, 0.0):
                    return False  # which may be ending what is left
            finally:
                os.close(watch)
        return self.word(began, alone=True).lasts

    def left(self) -> dict[tuple[int, int], str]:
        """The tasks of processes that the last agent has named at its end, by pid and start time;
        nothing where the machine has booted since."""
        if not _read(self.began).startswith(boot_id()):
            return {}
        return {(pid, start): task for pid, start, task in self._left(_read_end(self.end))}

    @staticmethod
    def _left(end: dict[str, Any]) -> tuple[tuple[int, int, str], ...]:
        with suppress(TypeError, ValueError):  # somebody has written to the file
            return tuple(
                (int(pid), int(start), str(task)) for pid, start, task in end.get("left", ())
            )
        return ()

    def write_end(
        self,
        text: str,
        tasks: Sequence[dict[str, Any]] = (),
        left: Sequence[Sequence[Any]] = (),
        signalled: int = 0,
        *,
        proven: bool,
    ) -> None:
        """Writes down why the agent ended and what had become of its tasks. `proven`: nothing at
        all is left of what it had started, by the kernel's word. `left` names what is."""
        proof = self._beginning if proven else ""
        end: dict[str, Any] = {"proves": proof, "text": text, "signalled": signalled}
        end.update(tasks=list(tasks), left=list(left))
        with suppress(OSError):  # a full disk: then there is a doubt
            _write(self.end, json.dumps(end))

    def write_ended(self, why: str, *, proven: bool) -> None:
        """Writes down why the agent died, and that its watchdog has ended what was left. Files of
        their own: a watchdog that was held may come long after the next agent's last line."""
        proof = self._beginning + ("" if proven else " without proof")
        with suppress(OSError):  # a full disk, or the next agent has removed the folder
            _write(self.died, f"{self._beginning}\n{why}")
        with suppress(OSError):
            _write(self.ended, proof)

    @property
    def cache(self) -> str:
        """Folder of staged contents for the next launch; made when it is first needed.

        Raises:
            FolderError: it cannot be made.
        """
        return self._writable(os.path.join(self._cache, "tfmux"), "cache")

    def _writable(self, wanted: str, instead: str) -> str:
        """A private folder: the wanted one, or on a read-only home one in the host-local place."""
        try:
            folder = private(wanted)
            if os.access(folder, os.W_OK):
                return folder
        except FolderError:
            pass  # the usual case of a read-only home: it cannot be made
        return private(os.path.join(self.local, instead))

    def log(self, task: str) -> str:
        """The log file of a task."""
        return os.path.join(self.logs, task.replace(":", "-") + ".log")

    def remove(self, *, proven: bool, staged: bool = True) -> None:
        """Takes the run's folder off this host, but for what its tasks have left as results; where
        it is not `proven` that nothing is left, but for what keeps the doubt, and with `staged`
        unset but for the staged files, in which there are results."""
        stays = {self.results} if staged else {os.path.join(self.run, name) for name in _STAYS}
        if not proven:
            stays.add(self.began)  # which tells when the machine has booted
        with suppress(OSError), os.scandir(self.run) as listing:
            # The staged files before what tells them from results.
            for entry in sorted(listing, key=lambda one: one.name):
                if entry.path in stays:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    _unlink(entry.path)
        with suppress(OSError):  # something stays
            os.rmdir(self.run)
        for path in (self.socket, self.lock, self.watch):  # the next agent waits for the last one
            _unlink(path)

    def touch(self) -> None:
        """Shows cleaners of `/tmp`, which go by age, that these are in use."""
        for path in (self.local, self.socket, self.lock):
            try:
                os.utime(path)
            except FileNotFoundError:
                continue  # too late

    def unlink_socket(self) -> None:
        """Removes the socket's file when the agent has stopped listening."""
        _unlink(self.socket)


@lru_cache(maxsize=None)  # the loop, which saves, opens no file
def has_agent(run_id: str, host: str) -> bool:
    """Whether an agent of a run is on this machine, or has ended here without proof.

    Raises:
        FolderError: the user's folder of this machine cannot be used.
    """
    return os.path.exists(os.path.join(local_folder(), _digest(run_id, host) + ".lock"))


def _digest(run_id: str, host: str) -> str:
    digest: str = sha256(f"{run_id}.{host}".encode()).hexdigest()
    return digest[:24]


def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def machine_id() -> str:
    """This machine's name for itself, the same after a boot: its host name and its installation's
    id, of which cloned machines have one."""
    return _digest(os.uname().nodename, _read("/etc/machine-id").strip())


def booted_since(began: str) -> bool:
    """Whether the machine of an agent that `began` has booted since, and is this one. Earlier
    versions do not name the machine."""
    boot = began.partition(" ")[0]
    return boot not in ("", boot_id()) and _machine_of(began) in ("", machine_id())


def _machine_of(began: str) -> str:
    return began.partition(" ")[2].partition(" ")[2]


def _read(path: str) -> str:
    """The contents of a small file; nothing where it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read(400)
    except OSError:
        return ""


def _died(why: str) -> str:
    return f"{_AGENT_DIED}: {why}" if why else _AGENT_DIED


def _read_end(path: str) -> dict[str, Any]:
    try:
        with open(path) as file:
            end = json.load(file)
    except (OSError, ValueError):
        return {}
    return end if isinstance(end, dict) else {}


def _write(path: str, text: str) -> None:
    """Writes a whole file or none: half of one is no word."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(path + ".new", flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def remove_tree(path: str) -> bool:
    """Removes a directory, also where a task has made one in it read-only. Returns whether nothing
    is left: another user's files may be."""
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    folders = [path] if is_folder else []  # grows meanwhile: `shutil.rmtree` recurses
    for folder in folders:
        with suppress(OSError):  # it belongs to another user
            folders += _empty(folder)
    for folder in reversed(folders):
        with suppress(OSError):  # another user's files are in it
            os.rmdir(folder)
    return not os.path.lexists(path)


def _empty(folder: str) -> list[str]:
    """Removes the files of a directory; returns its folders."""
    below = []
    with suppress(OSError):  # listing says it better
        unlock(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(fd) as listing:
            for item in list(listing):
                if item.is_dir(follow_symlinks=False):
                    below.append(os.path.join(folder, item.name))
                else:
                    with suppress(OSError):  # another user's, in a folder of that user
                        os.unlink(item.name, dir_fd=fd)
    finally:
        os.close(fd)
    return below


def unlock(folder: str) -> None:
    """Gives the owner all permissions on a directory.

    Raises:
        OSError: it belongs to another user.
    """
    mode = stat.S_IMODE(os.lstat(folder).st_mode)
    if mode & 0o700 != 0o700:
        os.chmod(folder, mode | 0o700)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return  # another agent's bridge, or a cleaner of /tmp, has
