"""Runs a cluster file's `prepare` lines on a host, once for each content of them.

    prepare.py fresh|lasting LINE…

The content is the lines and every file or directory of the workdir (where this is started) that
is a word in them: a changed `requirements.txt` or wheel means that they run again. The stamp
that says "done" is the user's, on this host. `fresh` says that the workdir is a copy that each
launch makes anew: lines that write into it are never done for good, and are told so.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import socket
import subprocess
import sys
import time
from typing import Iterator

_SKIPPED = ("__pycache__",)


def main(words: list[str]) -> int:
    """Returns the status of the first line that failed, else 0."""
    fresh, lines = words[0] == "fresh", words[1:]
    place = "" if fresh else os.getcwd()
    digest = content(lines, place)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(base, "tfmux", "prepared")
    stamp = _stamp(folder, digest)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        lock = open(os.path.join(folder, digest + ".lock"), "w")
    except OSError as error:
        say(f"{error.filename}: {error.strerror}; there is no place to note what is prepared")
        return 1
    with lock:
        _wait_for(lock.fileno())
        if os.path.exists(stamp):
            day = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(stamp).st_mtime))
            say(f"already done for this content, on {day}; remove {stamp} to do it again")
            return 0
        before = dict(_files(".")) if fresh else {}
        status = run(lines)
        if status:
            say(f"failed with status {status}")
            return status
        if fresh and dict(_files(".")) != before:
            say("done, but it wrote into the workdir, which is new at each launch: it will run")
            say("again then. Let it write to a place that stays, such as ~/…")
            return 0
        # As the next launch will find it: a line may have written what it names.
        with open(_stamp(folder, content(lines, place)), "w") as file:
            file.write("\n".join(lines) + "\n")
        say("done")
        return 0


def content(lines: list[str], place: str) -> str:
    """The hash of the lines, of what they name, and of where a workdir stays in its `place`."""
    total = hashlib.sha256()
    for text in (place, *lines):
        total.update(hashlib.sha256(text.encode(errors="surrogateescape")).digest())
    for path in sorted({word for line in lines for word in _named(line)}):
        for name, _ in [(path, None)] if os.path.isfile(path) else sorted(_files(path)):
            total.update(hashlib.sha256(os.fsencode(name)).digest())
            total.update(_file_hash(name))
    return total.hexdigest()[:40]


def run(lines: list[str]) -> int:
    """Runs the lines in one shell, so that a `cd` or an activated environment holds for those
    that follow; each is shown before it runs."""
    script = "\n".join(f"printf '+ %s\\n' {shlex.quote(line)}\n{line}" for line in lines)
    status = subprocess.call(["/bin/sh", "-e", "-c", script])
    return 128 - status if status < 0 else status


def say(text: str) -> None:
    """A line of our own in the log."""
    print(f"prepare: {text}", flush=True)


def _stamp(folder: str, digest: str) -> str:
    return os.path.join(folder, f"{digest}.{socket.gethostname()}")


def _wait_for(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("waiting for another host or run that prepares the same in this home")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _named(line: str) -> Iterator[str]:
    """The files and directories of the workdir that are words of a line."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # a quote that is closed on another line
        words = line.split()
    for word in words:
        for path in (word, word.partition("=")[2], word[2:] if word.startswith("-") else ""):
            inside = path and not path.startswith(("/", "~")) and ".." not in path.split("/")
            if inside and os.path.exists(path):
                yield os.path.normpath(path)


def _files(folder: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The files below a folder, with size and time of the last change; not those that are hidden
    in dotted folders, nor compiled Python."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED and name[0] != "."]
        for name in names:
            path = os.path.join(base, name)
            info = os.lstat(path)
            yield path, (info.st_size, info.st_ctime_ns)


def _file_hash(path: str) -> bytes:
    digest = hashlib.sha256()
    if os.path.isfile(path):
        with open(path, "rb") as file:
            for data in iter(lambda: file.read(1 << 20), b""):
                digest.update(data)
    return digest.digest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
