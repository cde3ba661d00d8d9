"""Short program on a host: answers what comes down its pipe, and ends with it.

The launcher sends it like the agent, over a session of its own. A question may hang (a name
server, a network disk, `nvidia-smi`): a child process answers each, and none outlives the program.
Files are brought by the program itself; nothing else is asked for meanwhile.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from contextlib import suppress
from typing import Any, NamedTuple

from ..agent.folders import FolderError, Folders
from ..agent.processes import become_subreaper, end_children
from ..agent.signals import block_signals
from ..agent.threads import error_text
from .pipe import CHUNK, Pipe, PipeEnded, write_all

_UNLINK_SECONDS = 2.0
_END_SECONDS = 0.5
"""Time for what cannot be ended: it waits for a disk, in the kernel."""
_LOOK = 0.02


def main(config: dict[str, Any]) -> None:
    """Answers until the pipe ends. `config` names the run and its host, and for a preflight
    (`lease`) the seconds of silence after which the launcher is taken for dead; for a run its
    agent decides, but for one that may be over (`alone`)."""
    block_signals()
    become_subreaper()
    try:
        folders = Folders(config["run"], config["host"], None, dict(os.environ))
        if config["lease"]:  # nobody else tries whether there can be a run
            folders.check_local()
            try:
                folders.make()
            finally:
                folders.remove(proven=True)
    except (FolderError, OSError) as error:
        Pipe().send({"error": error_text(error)})
        return
    if config["lease"]:
        pipe = Pipe(silence=config["lease"])
    elif config.get("alone"):
        pipe = Pipe()
    else:
        pipe = Pipe(lambda: os.path.exists(folders.socket))
    program = Questions(pipe, folders)
    with suppress(PipeEnded, BrokenPipeError):
        try:
            pipe.send({})  # a command that holds its input back is found out before it gets much
            program.run()
        finally:
            program.close()


class _Child(NamedTuple):
    """A process that answers a question; what it says comes from `source`."""

    pid: int
    source: int
    asked: dict[str, Any]
    said: bytearray


class Questions:
    """Questions of one launcher, and what they have left here until `close`."""

    def __init__(self, pipe: Pipe, folders: Folders) -> None:
        self._pipe = pipe
        self._folders = folders
        self._children: dict[int, _Child] = {}
        self._marks: list[dict[str, Any]] = []
        """Questions about log directories: each may have left a file there."""
        self._put_off: list[dict[str, Any]] = []
        """Questions for which no process could be started: the login may have few."""
        self._listeners: Any | None = None

    def run(self) -> None:
        """Takes requests as they come.

        Raises:
            PipeEnded: the launcher has gone.
            OSError: it does not read.
        """
        while True:
            listening = self._listeners.descriptors() if self._listeners else ()
            for fd in self._pipe.wait((*self._children, *listening)):
                if fd == self._pipe.source:
                    self._take(self._pipe.receive())
                elif fd in self._children:
                    self._hear(self._children[fd])
                elif self._listeners:
                    self._listeners.serve(fd)

    def close(self) -> None:
        """Ends the questions that hang, and removes the files that others left."""
        for child in list(self._children.values()):
            self._end(child)
        if self._listeners:
            self._listeners.close()
        if not self._marks:
            return
        child_pid = os.fork()
        if not child_pid:  # the disk may hang
            try:
                from .probe import remove_mark

                for asked in self._marks:
                    remove_mark(asked)
            finally:
                os._exit(0)
        deadline = time.monotonic() + _UNLINK_SECONDS
        while os.waitpid(child_pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(_LOOK)

    def _take(self, asked: dict[str, Any]) -> None:
        what = asked["what"]
        if what == "beat":
            return
        if what == "end":
            raise PipeEnded(0, "the launcher has all that it wants")
        if what in ("stage", "collect", "collect-results", "results"):
            self._bring(asked)
            return
        try:
            if what == "listen":  # by this process, which others connect to
                from .reach import Listeners

                self._listeners = self._listeners or Listeners(asked["token"].encode())
                said = self._listeners.open(asked["ports"], asked["pick"])
                self._pipe.send({"id": asked["id"], **said})
                return
            self._fork(asked)
        except OSError as error:  # no process or descriptor is left
            if error.errno == errno.EAGAIN and self._children:
                self._put_off.append(asked)  # until one of them has ended
                return
            self._pipe.send({"id": asked["id"], "error": error_text(error)})

    def _bring(self, asked: dict[str, Any]) -> None:
        from .transfer import bring

        try:
            bring(self._pipe, self._folders, asked)
        except (PipeEnded, BrokenPipeError):
            raise
        except Exception as error:  # whatever it is, the launcher waits for an answer
            self._pipe.send({"error": error_text(error)})

    def _fork(self, asked: dict[str, Any]) -> None:
        if asked["what"] == "logdir":
            self._marks.append(asked)
        source, sink = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(source)
            os.close(sink)
            raise
        if not pid:
            self._answer(asked, sink)
        os.close(sink)
        self._children[source] = _Child(pid, source, asked, bytearray())

    def _answer(self, asked: dict[str, Any], sink: int) -> None:
        """The child: answers and ends."""
        try:
            os.setsid()
            become_subreaper()
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._pipe.source)
            os.dup2(null, 1)
            if self._listeners:
                self._listeners.close()  # a port is free when the program has ended
            try:
                from . import probe

                said = probe.ANSWERS[asked["what"]](asked, self._folders)
            except Exception as error:  # whatever it is, the launcher waits for an answer
                said = {"error": error_text(error)}
            end_children((), _END_SECONDS)  # what programs that it asked have left
            write_all(sink, json.dumps(said).encode())
        finally:
            os._exit(0)

    def _hear(self, child: _Child) -> None:
        data = os.read(child.source, CHUNK)
        child.said.extend(data)
        if data:
            return
        self._end(child)
        try:
            said = json.loads(child.said)
        except ValueError:
            said = {"error": "the process that was to answer has been killed"}
        if child.asked["what"] == "logdir" and not (child.asked.get("keep") or "error" in said):
            self._marks.remove(child.asked)
        self._pipe.send({"id": child.asked["id"], **said})
        waiting, self._put_off = self._put_off, []
        for asked in waiting:
            self._take(asked)

    def _end(self, child: _Child) -> None:
        """Ends a question's process and all that it has started."""
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        del self._children[child.source]
        os.close(child.source)
        # What it has asked falls to this process, when it has ended itself.
        end_children({each.pid for each in self._children.values()}, _END_SECONDS)
