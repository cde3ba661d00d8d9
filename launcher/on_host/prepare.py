"""Runs a cluster file's `prepare` lines on a host, once for each content of them.

    prepare.py fresh|lasting LINE…

The content is the lines, every file or directory of the workdir (the current directory) that is a
word in them, and the host's Python if they name it: they run again when a `requirements.txt` or a
wheel has changed. The stamp file of lines that are done belongs to the user and this host. `fresh`
means that each launch makes a new copy of the workdir: lines that write into it run each time, and
a message says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from typing import Iterator

_SKIPPED = ("__pycache__",)
_PYTHON = "TFMUX_PYTHON"
_NOT_STORED = "cannot store that these lines are done, so they run at each launch"


def main(words: list[str]) -> int:
    """Returns the status of the first line that failed, else 0."""
    fresh, lines = words[0] == "fresh", words[1:]
    place = "" if fresh else os.getcwd()
    status = _prepare(lines, place, fresh=fresh)
    if fresh and not status:
        mark_prepared()
    return status


def mark_prepared() -> None:
    """Names the files of the copied workdir, with size and times, beside it: those that stay so no
    task has made. The folders of environments are among them: only tfmux reads this."""
    stage = os.path.dirname(os.getcwd())
    if not os.path.exists(stage + ".index"):
        return
    found = {}
    todo = [stage]
    while todo:
        try:
            with os.scandir(todo.pop()) as listing:
                for item in listing:
                    if item.is_dir(follow_symlinks=False):
                        todo.append(item.path)
                        continue
                    info = item.stat(follow_symlinks=False)
                    name = os.path.relpath(item.path, stage)
                    found[name] = (info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        except OSError:  # it may not be read: what is in there counts as a result
            continue
    try:
        with open(stage + ".prepared.new", "w") as file:
            json.dump(found, file)
        os.rename(stage + ".prepared.new", stage + ".prepared")
    except OSError as error:  # a full disk: what the lines have made counts as results
        log(f"{stage}.prepared: {error.strerror}")


def _prepare(lines: list[str], place: str, *, fresh: bool) -> int:
    digest = content(lines, place)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(base, "tfmux", "prepared")
    stamp = _stamp(folder, digest)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        lock = open(os.path.join(folder, digest + ".lock"), "w")
    except OSError as error:  # a home that is read-only, or full
        log(f"{error.filename}: {error.strerror}: {_NOT_STORED}")
        return _finish(run(lines))
    with lock:
        _wait_for(lock.fileno())
        if os.path.exists(stamp):
            day = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(stamp).st_mtime))
            log(f"already done for this content on {day}; to run it again, remove {stamp}")
            return 0
        before = dict(_files(".")) if fresh else {}
        status = run(lines)
        if status:
            return _finish(status)
        if fresh and dict(_files(".")) != before:
            log("done, but files in the workdir were changed, which is copied at each launch, so")
            log("it will run again at the next launch. Write to a lasting folder, such as ~/…")
            return 0
        stamp = _stamp(folder, content(lines, place))  # a line may have changed a file it names
        try:
            with open(stamp, "w") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            if not os.path.exists(stamp):  # an empty one does as well
                log(f"{stamp}: {error.strerror}: {_NOT_STORED}")
        return _finish(0)


def _finish(status: int) -> int:
    log(f"failed with status {status}" if status else "done")
    return status


def content(lines: list[str], place: str) -> str:
    """Hashes the lines, the Python and the files that they name, and the `place` of a workdir that
    lasts."""
    total = hashlib.sha256()
    named = any(_PYTHON in line for line in lines)
    for text in (place, *lines, *([os.environ.get(_PYTHON, "")] if named else ())):
        total.update(hashlib.sha256(text.encode(errors="surrogateescape")).digest())
    for path in sorted({word for line in lines for word in _named(line)}):
        for name, _ in [(path, None)] if os.path.isfile(path) else sorted(_files(path)):
            total.update(hashlib.sha256(os.fsencode(name)).digest())
            total.update(_file_hash(name))
    return total.hexdigest()[:40]


def run(lines: list[str]) -> int:
    """Runs the lines in one shell, so that a `cd` or an activated environment applies to the lines
    that follow; each line is printed before it runs, or all of them at the beginning where one
    goes on in the next (a here-document, a quote, a loop)."""
    prints = [f"printf '+ %s\\n' {shlex.quote(line)}" for line in lines]
    if all(map(_stands_alone, lines)):
        parts = [part for both in zip(prints, lines) for part in both]
    else:
        parts = prints + lines
    status = subprocess.call(["/bin/sh", "-e", "-c", "\n".join(parts)])
    return 128 - status if status < 0 else status


def _stands_alone(line: str) -> bool:
    """The line is a whole command; a shell does not mind an open here-document or a backslash."""
    if "<<" in line or line.endswith("\\"):
        return False
    nothing = subprocess.DEVNULL
    return not subprocess.call(["/bin/sh", "-n", "-c", line], stdout=nothing, stderr=nothing)


def log(text: str) -> None:
    """Writes a line of this script's own to the log."""
    print(f"prepare: {text}", flush=True)


def _stamp(folder: str, digest: str) -> str:
    return os.path.join(folder, f"{digest}.{socket.gethostname()}")


def _wait_for(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        log("waiting for another host or run that prepares the same in this home directory")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _named(line: str) -> Iterator[str]:
    """Yields the files and directories of the workdir that are words of a line."""
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
    """Yields the files below a folder with their size and time of change, except those in hidden
    folders and compiled Python."""
    todo = [folder]  # a stack: `os.walk` recurses before Python 3.12
    while todo:
        try:
            with os.scandir(todo.pop()) as listing:
                found = list(listing)
        except OSError:  # it may not be read
            continue
        for item in found:
            if not item.is_dir(follow_symlinks=False):
                info = item.stat(follow_symlinks=False)
                yield item.path, (info.st_size, info.st_ctime_ns)
            elif item.name not in _SKIPPED and item.name[0] != ".":
                todo.append(item.path)


def _file_hash(path: str) -> bytes:
    digest = hashlib.sha256()
    if os.path.isfile(path):
        try:
            with open(path, "rb") as file:
                for data in iter(lambda: file.read(1 << 20), b""):
                    digest.update(data)
        except OSError:  # it may not be read
            info = os.lstat(path)
            digest.update(f"{info.st_size} {info.st_ctime_ns}".encode())
    return digest.digest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
