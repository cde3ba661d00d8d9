"""The program that the tests launch: it misbehaves as told, and keeps a ledger of its output.

How long it goes on is said by `SECONDS`, for the tasks named in `FIRST` by `FIRST_SECONDS`, and for
later attempts of all tasks by `AGAIN_SECONDS`. What must happen before it ends, or before it ends
again, is no matter of seconds: a word there instead of a number is waited for until `tell` says it,
and `ATTEMPT` in it stands for the attempt's number. `LATE` names tasks that listen only when they
are told `listen`, or `listen.` and the task.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.command import python_task

LARGEST = 3000
"""Bytes that the program writes at once, at most; under PIPE_BUF, so none is torn."""

CONTENT = r"""
def content(name, largest, worst):
    chance = random.Random(name)
    yield b"here is " + name.encode() + b"\n"
    texts = [b"loss: " + b"1" * 30000, b"a" * 32000 + b"\b" * 32000, b"\x1b[" * 16000, b"x" * 65536]
    while True:
        if worst and chance.random() < 0.05:
            text = b"\n" + chance.choice(texts)
            for at in range(0, len(text), 3000):
                yield text[at : at + 3000]
        size = chance.randrange(1, largest)
        odd = chance.choice([b"\n", b"\r", b"\xff\xfe", b"", b"\x1b[31m"])
        yield odd + chance.randbytes(size // 50) + chance.randbytes(size // 3).hex().encode()
"""
"""What a task writes, piece after piece: the same for the task and for who judges its log."""

SCRIPT = r"""
import hashlib, os, random, signal, socket, struct, subprocess, sys, time
{CONTENT}

_, task, attempt = os.environ["TFMUX_TASK"].rstrip(";").split("/")
modes = os.environ.get("MODES", "").split()
folder = os.environ["LEDGER"]
os.makedirs(folder, exist_ok=True)
name = os.environ["TFMUX_RUN_ID"] + "." + task.replace(":", "-") + "." + attempt
ledger = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o644)
digest, count = hashlib.sha256(), 0
pace = float(os.environ.get("PACE", "0.01"))
pieces = content(name, 3000 if pace < 0.001 else 300, "WORST" in os.environ)


def write(data):
    global count
    while data:
        done = os.write(1, data)
        digest.update(data[:done])
        count += done
        os.pwrite(ledger, struct.pack(">Q", count) + digest.digest(), 0)
        data = data[done:]


def daemon(words, environ):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.closerange(3, 64)
            os.execve("/bin/sh", ["sh", "-c", words], environ)
        os._exit(0)
    os.wait()


if "stubborn" in modes:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" in modes:
    subprocess.Popen(["sleep", "3001"], stdout=subprocess.DEVNULL)
if "daemon" in modes:
    daemon(("sleep 3002; : " + os.environ.get("MARK", "")).strip(), {})
if "orphan" in modes:
    daemon("trap '' TERM; sleep 3003; :", dict(os.environ))
if "holder" in modes:
    subprocess.Popen(["sleep", "3004"])
if "chain" in modes and os.fork() == 0:
    os.close(1)
    os.close(2)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)
    os._exit(0)

def told(word):
    return os.path.exists(os.path.join(folder, os.environ["TFMUX_RUN_ID"] + "." + word))


write(next(pieces))
while task in os.environ.get("LATE", "").split(","):
    if told("listen") or told("listen." + task):
        break
    time.sleep(0.02)
server = socket.create_server(("0.0.0.0", int(sys.argv[1])), reuse_port=False)
if "stops" in modes:
    os.kill(os.getpid(), signal.SIGSTOP)
if "mute" in modes:
    os.close(1)
    os.close(2)
    time.sleep(3000)
limit = int(os.environ.get("BYTES", "1000000000"))
left = os.environ.get("SECONDS", "3000")
if task in os.environ.get("FIRST", "").split(","):
    left = os.environ["FIRST_SECONDS"]
if attempt != "1":
    left = os.environ.get("AGAIN_SECONDS", left)
try:
    end, word = time.monotonic() + float(left), ""
except ValueError:
    end, word = 0.0, left.replace("ATTEMPT", attempt)
least = int(os.environ.get("LEAST", "0"))
while time.monotonic() < end or count < least or (word and not told(word)):
    write(next(pieces))
    if count > limit:
        time.sleep(3000)
    if pace:
        time.sleep(pace)
write(b"\ndone " + digest.hexdigest().encode() + b"\n")
# Who has worked may leave others behind; who has not has put its work into the background.
while {"child", "daemon", "orphan", "holder", "chain"} & set(modes) and time.process_time() < 0.4:
    pass
if "fails" in modes and int(attempt) <= int(os.environ.get("FAILURES", "1000")):
    sys.exit(7)
""".replace("{CONTENT}", CONTENT)


def command() -> Sequence[str]:
    """The command of a task: its port is the first argument."""
    return [*python_task(SCRIPT), "{port}"]


def tell(folder: Path, run_id: str, word: str) -> None:
    """Says a word to all tasks of a run that keep their ledgers in a folder."""
    (folder / f"{run_id}.{word}").touch()


@dataclass(frozen=True)
class Ledger:
    """What one attempt of a task says it has written: so many bytes, with this SHA-256."""

    count: int
    digest: bytes

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Reads the ledger that a task keeps; it may have been killed at any moment."""
        raw = path.read_bytes() if path.exists() else b""
        if len(raw) < 40:
            return cls(0, hashlib.sha256().digest())
        return cls(struct.unpack(">Q", raw[:8])[0], raw[8:40])

    def begins(self, log: bytes, name: str, pace: float, worst: bool) -> bool:
        """The log is the beginning of what the task wrote; nobody may have collected the rest."""
        if len(log) > self.count + LARGEST:
            return False
        scope: dict[str, Any] = {"random": random}
        exec(CONTENT, scope)
        at = 0
        for piece in scope["content"](name, LARGEST if pace < 0.001 else 300, worst):
            part = log[at : at + len(piece)]
            if not piece.startswith(part):
                digest = hashlib.sha256(log[:at]).hexdigest()
                return f"\ndone {digest}\n".encode().startswith(log[at:])
            at += len(part)
            if at == len(log):
                return True
        return False

    def agrees(self, log: bytes) -> bool:
        """The log is what the task wrote, and at most the one write more whose entry in the
        ledger a kill has prevented."""
        whole = hashlib.sha256(log[: self.count]).digest() == self.digest
        return whole and self.count <= len(log) <= self.count + LARGEST + 1
