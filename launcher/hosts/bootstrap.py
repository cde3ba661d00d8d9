"""Bootstrap of the agent on a host where nothing of ours is installed, until it says welcome.

The command that a login shell sees is one line in single quotes, without a quote, `!` or line
break in it, so that bash, dash, csh, tcsh and fish read it alike. It prints a marker *before*
anything is sent: a `.bashrc` that reads its input or starts another shell would otherwise eat
the modules, or run them. Then comes a loader, and then the agent's modules, packed: as code
where the host's interpreter has the magic number of ours, else as source.

All this is the same on every way. A login shell may print, wait, or be something else than a shell:
everything up to the marker is skipped, and every wait has a deadline. Behind the marker come all
256 values of a byte: a terminal or a filter in between changes some, or holds them back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import marshal
import os
import re
import secrets
import shlex
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from importlib import resources
from importlib.abc import InspectLoader
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from ..agent import wire
from ..errors import AgentError, HostError
from ..frozen import frozen
from ..ids import TaskId
from ..plan.environment import ASKED
from ..plan.run_plan import HostPlan, Plan
from ..printable import printable
from ..run.states import Purpose
from .frame_checks import FrameChecker
from .frames import Gone, Hello, Refusal, Rules, Welcome
from .transport import ArrivalErrors, Transport, TransportFactory

START_SECONDS = 30.0
AGENT_SECONDS = START_SECONDS / 2
"""How long a bridge waits for an agent that an engine starts."""
PROBE_SECONDS = 5.0
"""For what comes without a line break: a stream that holds it back is of no use."""
_MOST_SEEN = 1 << 16
_NOISE_BYTES = 4096
EVERY_BYTE = bytes(range(256))
"""All values of a byte, by which a stream shows that it changes none. No line break follows: what
waits for one holds our bytes back."""

_MARSHAL_VERSION = 4
"""Version of `marshal` that every interpreter reads; code is for interpreters of our own
version."""
_MAGIC = b"tfmux-agent-magic:"
_SHELL = re.compile(rb"tfmux-shell-[0-9a-f]+\r?\n")
"""What a login shell prints that runs commands."""
_LINE = (
    "import binascii,os,sys;"
    'm=getattr(sys.modules.get("_frozen_importlib_external"),"MAGIC_NUMBER",b"");'
    'os.write(1,b"%s"+binascii.hexlify(m)+b"\\n%s\\n"+bytearray(range(256)));'
    'r=lambda n,b=b"":b if len(b)==n else r(n,b+(os.read(0,n-len(b)) or os._exit(9)));'
    "exec(r(int(r(8))))"
)

_LOADER = """
import json, os, struct, sys, zlib
if sys.version_info < (3, 8):
    said = "Python %d.%d is too old for a host, it needs 3.8 or newer" % tuple(sys.version_info)[:2]
    said = json.dumps({"text": said, "error": said, "code": "python-old"}).encode()
    os.write(1, struct.pack(">I", len(said)) + HEAD + said)
    os._exit(0)
def read(count):
    parts = []
    while count:
        part = os.read(0, min(count, 65536))
        if not part:
            os._exit(9)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
packed = zlib.decompress(read(int(read(8))))
config = json.loads(CONFIG)
"""
_IMPORTER = """
import gc, importlib.util, marshal, sys
modules, config["tools"] = marshal.loads(packed)
del packed
class Sent:  # importlib.abc would take a third of the start
    def find_spec(self, name, path=None, target=None):
        if name in modules:
            is_package = modules[name] == ""
            return importlib.util.spec_from_loader(name, self, is_package=is_package)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        body = modules.pop(module.__name__)
        is_source = isinstance(body, str)
        name = "<" + module.__name__ + ">"
        exec(compile(body, name, "exec") if is_source else marshal.loads(body), module.__dict__)
sys.meta_path.insert(0, Sent())
sys.dont_write_bytecode = True
gc.disable()  # a tenth of the imports would go into looks at modules, which stay
from launcher.PACKAGE import MAIN
gc.enable()
MAIN.main(config)
"""
_AGENT = ("agent", "start")
_PROGRAM = ("on_host", "program")
_PACKAGES = ("agent", "on_host")
_NOT_SENT = {
    _AGENT: ("on_host.",),
    _PROGRAM: (
        *("agent.attempts", "agent.channel", "agent.kills", "agent.log_end", "agent.loop"),
        *(
            "agent.stack_taker",
            "agent.start",
            "agent.task_logs",
            "agent.watchdog",
            "on_host.prepare",
            "on_host.warm",
        ),
    ),
}
"""Modules that each does not need: half of what an interpreter would have to unpack."""
_TOOLS = ("prepare.py", "warm.py", "stacks/sitecustomize.py")
"""Scripts of `on_host` that tasks run or import: the agent writes them beside its files."""
ENGINE_LINE = (
    "import base64,marshal,sys,zlib;"
    "sent=marshal.loads(zlib.decompress(base64.b64decode(sys.stdin.readline())));"
    'packed,config=sent.pop("packed"),sent["config"];config["host"]=sys.argv[1];'
    'exec(sent["loader"])'
)
"""The program by which an engine starts an agent: its argument is the host's name, its input
`engine_payload` as a line."""

_OF_SLURM = ("SLURM_", "SRUN_")
_OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK")
WITHOUT_JOB = """\
for name in $(env | sed -n -e 's/^\\(S[LR]U[A-Z]*_[A-Za-z0-9_]*\\)=.*/\\1/p'); do
    case $name in
        SLURM_CONF*|SLURM_CLUSTERS|SLURM_JWT*|SLURM_SACK*) ;;
        SLURM_*|SRUN_*) unset "$name" ;;
    esac
done"""
"""What `without_job` does, for a shell."""


def without_job(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables of a Slurm job, or of a person who sets options of srun:
    for srun all of them are options, and those of another job are none of this run's tasks. Which
    cluster it is stays."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_OF_SLURM) or name.startswith(_OF_THE_CLUSTER)
    }


# --- settings -----------------------------------------------------------------------------


@frozen
class LinkSettings:
    """Settings of a run for one host: for its agent, and for our link to that."""

    run_id: str
    host: str
    rules: Rules
    local: bool
    """The agent is on this machine: the end of its channel means that the launcher is dead."""
    shortest_lease: float | None = None
    """The shortest lease that the run will ask for; None: that of `rules`."""
    logs: str | None = None
    """Folder of the logs on this machine."""
    persistent: bool = False
    """Attached: a host that cannot be reached at first is lost, not refused."""
    has_agent: bool = False
    """An engine has started the agent, or is about to: the bridge waits for it and makes none."""
    tasks: Mapping[TaskId, int] = field(default_factory=dict)
    """The host's tasks, each with its `log_limit`."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        host: HostPlan,
        logs: Path,
        *,
        persistent: bool = False,
        background: bool = False,
    ) -> LinkSettings:
        """The settings of a planned host; of a run in the `background` with the rules for that."""
        return cls(
            run_id=plan.run_id,
            host=host.name,
            rules=Rules.of(plan, background=background),
            shortest_lease=min(plan.settings.lease, plan.settings.background_lease),
            local=host.local,
            logs=str(logs) if host.local else None,
            persistent=persistent,
            has_agent=host.has_agent,
            tasks={task.id: task.log_limit for task in plan.on_host(host.name)},
        )

    @property
    def beat(self) -> float:
        """Seconds between two beats: a quarter of a short lease, else two seconds."""
        return min(2.0, (self.shortest_lease or self.rules.lease) / 4)

    def config(
        self,
        *,
        make: bool = True,
        known: bool = False,
        rouse: bool = False,
        end_before: bool = False,
    ) -> wire.Json:
        """Configuration for the bridge. Without `make` it only looks for an agent, for `wait`
        seconds; one that is `known` has been there before, and is not waited for. With `rouse` an
        agent that somebody has stopped goes on, or is ended with all that it has started; with
        `end_before` it is ended whatever it does."""
        wait = AGENT_SECONDS if make and self.has_agent and not known else 0.0
        make = make and not self.has_agent
        wanted = {"make": make, "wait": wait, "rouse": rouse, "end_before": end_before}
        return {**self._shared, **wanted}

    @property
    def engine_config(self) -> wire.Json:
        """Configuration for a process that an engine starts. It has no channel; the watchdog is
        this very process, the first one of a job step, which ends with it."""
        return {**self._shared, "by_engine": True}

    @property
    def _shared(self) -> wire.Json:
        shared = {"run_id": self.run_id, "host": self.host, "local": self.local}
        return {**shared, "logs": self.logs, "rules": self.rules.to_json()}

    def hello(self, token: str, *, query: bool = False, ends: bool = False) -> Hello:
        """The first frame; a `query` replaces no launcher and renews no lease. `ends`: whoever
        greets is about to end the run."""
        return Hello(
            token=token,
            launcher=f"{os.uname().nodename}:{os.getpid()}",
            variables=ASKED,
            rules=None if query else self.rules,
            purpose=Purpose.KILL if ends else Purpose.ATTACH,
        )

    def refused(self, refusal: Refusal) -> AgentError:
        """The error that a host's refusal is."""
        todo = ""
        if refusal.code == wire.OTHER_VERSION:
            todo = f"attach with that version, or end the run: tfmux kill {self.run_id}"
        return AgentError(self.host, refusal.text, code=refusal.code, todo=todo)

    def frame_checker(self) -> FrameChecker:
        """The rules for what the host may say."""
        return FrameChecker(self.host, self.tasks, local=self.local, adopts=self.persistent)


# --- what is sent -------------------------------------------------------------------------


def marker(nonce: str) -> bytes:
    """The line that the host prints when its interpreter is ready, before `EVERY_BYTE`."""
    return f"tfmux-agent-{nonce}".encode()


def split_magic(before: bytes) -> tuple[bytes, bytes]:
    """What a host printed before the marker: the noise of its shell, and the magic number of its
    interpreter, empty where it has said none."""
    before = _SHELL.sub(b"", before, 1)
    found = re.search(_MAGIC + rb"([0-9a-f]{8})\n\Z", before)
    if found is None:
        return before, b""
    return before[: found.start()], bytes.fromhex(found[1].decode())


def argv(python: str, run_id: str, nonce: str) -> list[str]:
    """The command for this machine."""
    line = _LINE % (_MAGIC.decode(), marker(nonce).decode())
    return ["env", f"TFMUX_AGENT={run_id};", python, "-IS", "-c", line]


def command(python: str, run_id: str, nonce: str) -> str:
    """The command for a login shell. A leading `~/` of the interpreter stays for the shell."""
    words = argv(python, run_id, nonce)
    if python.startswith("~/"):
        head = shlex.join(words[:2])
        return f"exec {head} ~/{shlex.quote(python[2:])} {shlex.join(words[3:])}"
    return f"exec {shlex.join(words)}"


def announced(command: str, nonce: str) -> str:
    """A command before which the login shell says that it runs commands (`ShellErrors`)."""
    return f"echo tfmux-shell-{nonce}; {command}"


def payload(config: Mapping[str, Any], magic: bytes) -> bytes:
    """Bytes that follow the marker, for an interpreter with a `magic_number`: the loader with the
    agent's `config`, and the agent's modules."""
    return _payload(_AGENT, config, magic, bytes([wire.ERROR]))


def program_payload(config: Mapping[str, Any], magic: bytes) -> bytes:
    """Bytes that follow the marker for the short program (`on_host`)."""
    return _payload(_PROGRAM, config, magic, b"")


def _payload(main: tuple[str, str], config: Mapping[str, Any], magic: bytes, head: bytes) -> bytes:
    packed = _packed(main, code=magic == MAGIC_NUMBER)
    loader = _LOADER.replace("HEAD", repr(head)).replace("CONFIG", repr(json.dumps(config)))
    line = (loader + _importer(main)).encode()
    return b"%08d%s%08d%s" % (len(line), line, len(packed), packed)


def _importer(main: tuple[str, str]) -> str:
    return _IMPORTER.replace("PACKAGE", main[0]).replace("MAIN", main[1])


def engine_payload(config: Mapping[str, Any]) -> str:
    """The source of the agent's modules, for interpreters that are not known yet, and its `config`
    as one word of plain characters."""
    packed = _marshalled(_AGENT, code=False)
    sent = {"packed": packed, "config": dict(config), "loader": _importer(_AGENT)}
    return base64.b64encode(zlib.compress(marshal.dumps(sent, _MARSHAL_VERSION))).decode()


@cache
def _packed(main: tuple[str, str], *, code: bool) -> bytes:
    """Packed once for all hosts: for a thousand of them it would take seconds."""
    return zlib.compress(_marshalled(main, code=code), 1)


def _marshalled(main: tuple[str, str], *, code: bool) -> bytes:
    """The modules that hosts get, by their names, and the scripts for tasks. Code is unpacked where
    a module is imported: bridges need half of it, and few hosts what reads `nvidia-smi`. It cannot
    be read by an interpreter of another version, so it is never among source."""
    modules: dict[str, str | bytes] = {"launcher": ""}
    for package in _PACKAGES:
        modules[f"launcher.{package}"] = ""
        for file in resources.files(f"launcher.{package}").iterdir():
            stem = file.name.removesuffix(".py")
            needed = not f"{package}.{stem}".startswith(_NOT_SENT[main])
            if stem != file.name != "__init__.py" and needed:
                name = f"launcher.{package}.{stem}"
                source = None if code else file.read_text(encoding="utf-8")
                modules[name] = marshal.dumps(_code(name)) if source is None else source
    scripts = resources.files("launcher.on_host")
    names = _TOOLS if main == _AGENT else ()
    sent = modules, {name: scripts.joinpath(name).read_text(encoding="utf-8") for name in names}
    return marshal.dumps(sent) if code else marshal.dumps(sent, _MARSHAL_VERSION)


def _code(name: str) -> CodeType:
    """A module's code as the import system has cached it."""
    spec = find_spec(name)
    assert spec is not None and isinstance(spec.loader, InspectLoader)
    code = spec.loader.get_code(name)
    assert code is not None
    return _rename(code, f"<{name}>")


def _rename(code: CodeType, file: str) -> CodeType:
    """The code under the name that source has on a host: the path of our file means nothing
    there, or another version of it."""
    constants = (_rename(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(constants))


# --- the handshake ------------------------------------------------------------------------


async def query_agent(
    settings: LinkSettings, open_transport: TransportFactory
) -> Welcome | Gone | None:
    """Asks a host's agent what it holds, without taking it over: its welcome. Without an agent
    `Gone.left` names the tasks of which processes live all the same; None when none do, and no
    `Gone.doubt` is left.

    Raises:
        HostError: the host cannot be reached, or its agent breaks the protocol.
    """
    checker = replace(settings, persistent=True).frame_checker()
    nonce = secrets.token_hex(8)
    transport = await open_transport(settings.run_id, nonce)
    try:
        hello = settings.hello("", query=True)
        data = await greet(transport, nonce, settings.config(make=False), hello)
        async with asyncio.timeout(START_SECONDS):
            decoder = wire.Decoder()
            while True:
                for frame in decoder.feed(data):
                    match checker.check(frame):
                        case Welcome() as welcome:
                            return welcome
                        case Gone() as gone if gone.left or gone.doubt:
                            return gone
                        case Refusal() as refusal:
                            raise settings.refused(refusal)
                    return None
                data = await transport.read()
                if not data:
                    return None
    except TimeoutError as error:
        raise AgentError(settings.host, "the agent did not answer") from error
    except wire.WireError as error:
        raise AgentError(
            settings.host, f"received data that is not from an agent: {error}"
        ) from error
    finally:
        await transport.aclose()


async def greet(transport: Transport, nonce: str, config: Mapping[str, Any], hello: Hello) -> bytes:
    """Sends the agent's modules and the first frame, once our command has arrived; returns what
    has come of the answer.

    Raises:
        HostError: it does not arrive.
    """
    arrival = await arrive(transport, nonce, config["host"])
    transport.write(payload(config, arrival.magic))
    transport.write(hello.encode())
    return arrival.rest


class Arrival(NamedTuple):
    """Arrival of our command on a host: its interpreter waits for a program."""

    magic: bytes
    """Magic number of the interpreter's code."""
    noise: bytes
    """What the login shell printed before."""
    rest: bytes
    """What followed."""


async def arrive(transport: Transport, nonce: str, host: str) -> Arrival:
    """Waits for the marker with `nonce` and for all values of a byte behind it.

    Raises:
        HostError: they do not come, or not as they were written.
    """
    errors = transport.errors or LoginErrors(host)
    before, rest = await _await_marker(transport, marker(nonce), errors)
    wanted = b"\n" + EVERY_BYTE
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            while wanted.startswith(rest) and len(rest) < len(wanted):
                data = await transport.read()
                if not data:
                    raise errors.ended(await transport.status(), rest, transport.complaint)
                rest += data
    except TimeoutError as error:
        raise errors.buffered() from error
    if not rest.startswith(wanted):
        raise errors.altered(wanted, rest)
    noise, magic = split_magic(before)
    return Arrival(magic, noise[:_NOISE_BYTES], rest[len(wanted) :])


async def _await_marker(
    transport: Transport, marker: bytes, errors: ArrivalErrors
) -> tuple[bytes, bytes]:
    """What came before the marker, and behind it."""
    seen, count = b"", 0
    try:
        async with asyncio.timeout(START_SECONDS):
            while marker not in seen:
                data = await transport.read()
                if not data:
                    raise errors.ended(await transport.status(), seen, transport.complaint)
                count += len(data)
                seen = (seen + data)[-_MOST_SEEN:]
                if error := errors.noisy(count, seen):
                    raise error
    except TimeoutError as late:
        if transport.close_input():  # then our line ends, and what was held back may come
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    while data := await transport.read():
                        seen = (seen + data)[-_MOST_SEEN:]
        raise errors.silent(seen, marker in seen, transport.complaint) from late
    before, _, rest = seen.partition(marker)
    return before, rest


class LoginErrors:
    """Errors of a login, and of this machine."""

    def __init__(self, host: str) -> None:
        self._host = host

    def ended(self, status: int | None, seen: bytes, complaint: str) -> HostError:
        """The interpreter is not there, or does not run."""
        said = last_line(complaint or seen.decode(errors="replace"))
        what = f"the interpreter did not start: {said or 'it printed nothing'}"
        todo = 'set python = "…" of the host to a Python 3.8 or newer'
        return HostError(self._host, what, code="python-missing", todo=todo)

    def silent(self, seen: bytes, held: bool, complaint: str) -> HostError:
        """A start-up file waits, or has started something else."""
        return self._blocked(f"did not run tfmux's command within {START_SECONDS:.0f} s", seen)

    def noisy(self, count: int, seen: bytes) -> HostError | None:
        """Start-up files may print what they like."""
        return None

    def buffered(self) -> HostError:
        """Something stands between the interpreter and us."""
        return self._unclean("holds output back until a line is full")

    def altered(self, wanted: bytes, found: bytes) -> HostError:
        """A terminal, or a filter, stands between the interpreter and us."""
        if found.startswith(b"\r"):
            return self._unclean("changes line ends")
        return self._unclean(f"changes bytes: {first_difference(wanted, found)}")

    def _blocked(self, what: str, seen: bytes) -> HostError:
        said = last_line(seen.decode(errors="replace"))
        what = f"logged in, but the login shell {what}{f' (it printed: {said})' if said else ''}"
        todo = "its start-up files (such as ~/.bashrc) may read input, wait, or start another "
        todo += "shell: let them do so only in interactive sessions"
        return AgentError(self._host, what, code="shell-blocked", todo=todo)

    def _unclean(self, how: str) -> HostError:
        what = "logged in, but the channel to tfmux's command is not 8-bit clean: a terminal in "
        what += f"between {how}"
        todo = "a ForceCommand there, or a command= in authorized_keys, may run it in a terminal "
        todo += "(script, screen): exclude this login from it"
        return AgentError(self._host, what, code="shell-blocked", todo=todo)


class ShellErrors(LoginErrors):
    """Errors of a login whose shell says first that it runs commands (`announced`)."""

    def ended(self, status: int | None, seen: bytes, complaint: str) -> HostError:
        """The interpreter did not start; or something else than our command was run."""
        ran, seen = _SHELL.search(seen) is not None, _SHELL.sub(b"", seen, 1)
        if ran or status in _NO_PROGRAM:
            error = super().ended(status, seen, complaint)
            if status in _NO_PROGRAM:
                return error
            todo = f"{error.todo}; a restricted shell (rbash) runs none: use another account there"
            return HostError(self._host, error.what, code=error.code, todo=todo)
        said = last_line(complaint or seen.decode(errors="replace"))
        what = f"logged in, but tfmux's command was not run: {said or 'the session ended'}"
        return AgentError(self._host, what, code="shell-blocked", todo=f"{_ELSE}: {_OTHER_ACCOUNT}")

    def silent(self, seen: bytes, held: bool, complaint: str) -> HostError:
        """A start-up file waits, or has started something else; or sshd runs something else."""
        error = super().silent(_SHELL.sub(b"", seen, 1), held, complaint)
        if _SHELL.search(seen) is not None:
            return error
        todo = f"{error.todo}; or {_ELSE}: {_OTHER_ACCOUNT}"
        return AgentError(self._host, error.what, code=error.code, todo=todo)


_NO_PROGRAM = (126, 127)
"""Statuses by which shells say that a program is not there, or cannot be run."""
_ELSE = (
    "its login shell (nologin, git-shell), /etc/nologin, a start-up file, or a ForceCommand or "
    "command= of sshd runs something else"
)
_OTHER_ACCOUNT = "use an account that may run commands, or exclude this login from it"


def first_difference(wanted: bytes, found: bytes) -> str:
    """The first byte that came as another one."""
    at = next(i for i, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b)
    return f"byte 0x{wanted[at]:02x} came as 0x{found[at]:02x}"


def last_line(text: str) -> str:
    """The last line that is not empty, for a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[-1], 300) if lines else ""
