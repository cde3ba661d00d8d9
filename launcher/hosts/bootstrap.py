"""Bootstrap of the agent on a host where nothing of ours is installed.

The command that a login shell sees is one line in single quotes, without a quote, `!` or line
break in it, so that bash, dash, csh, tcsh and fish read it alike. It prints a marker *before*
anything is sent: a `.bashrc` that reads its input or starts another shell would otherwise eat
the source, or run it. Then comes a loader, and then the agent's modules, packed.
"""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from functools import cache
from importlib import resources

from ..agent import wire
from ..agent.config import AgentConfig

EVERY_BYTE = bytes(range(256))
"""All values of a byte, by which a stream shows that it changes none."""

_LINE = (
    'import os;os.write(1,b"%s\\n"%s);'
    'r=lambda n,b=b"":b if len(b)==n else r(n,b+(os.read(0,n-len(b)) or os._exit(9)));'
    "exec(r(int(r(8))))"
)

_LOADER = """
import json, os, struct, sys, zlib
if sys.version_info < (3, 8):
    said = "Python %d.%d is too old for a host, it needs 3.8 or newer" % tuple(sys.version_info)[:2]
    said = json.dumps({"text": said, "code": "python-old"}).encode()
    os.write(1, struct.pack(">IB", len(said), ERROR) + said)
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
sent = json.loads(zlib.decompress(read(int(read(8)))).decode())
"""
_IMPORTER = """
import importlib.util, sys
class Sent:  # importlib.abc would take a third of the start
    def find_spec(self, name, path=None, target=None):
        if name in sent["modules"]:
            return importlib.util.spec_from_loader(name, self, is_package=name in sent["packages"])
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(sent["modules"][name], "<" + name + ">", "exec"), module.__dict__)
sys.meta_path.insert(0, Sent())
sys.dont_write_bytecode = True
from launcher.agent import bridge
bridge.main(sent["config"])
"""
HOME_LINE = (
    "import base64,json,sys,zlib;"
    "sent=json.loads(zlib.decompress(base64.b64decode(sys.stdin.readline())).decode());"
    'sent["config"]["host"]=sys.argv[1];'
    'exec(sent["loader"])'
)
"""The program of a home: its argument is the host's name, its input `home_payload` as a line."""


def marker(nonce: str) -> bytes:
    """The line that the host prints when its interpreter is ready."""
    return f"tfmux-agent-{nonce}".encode()


def argv(python: str, run_id: str, nonce: str, *, every_byte: bool = False) -> list[str]:
    """The command for this machine. With `every_byte`, `EVERY_BYTE` follows the marker."""
    line = _LINE % (marker(nonce).decode(), "+bytearray(range(256))" if every_byte else "")
    return ["env", f"TFMUX_AGENT={run_id};", python, "-IS", "-c", line]


def command(python: str, run_id: str, nonce: str, *, every_byte: bool = False) -> str:
    """The command for a login shell. A leading `~/` of the interpreter stays for the shell."""
    words = argv(python, run_id, nonce, every_byte=every_byte)
    if python.startswith("~/"):
        head = shlex.join(words[:2])
        return f"exec {head} ~/{shlex.quote(python[2:])} {shlex.join(words[3:])}"
    return f"exec {shlex.join(words)}"


def payload(config: AgentConfig) -> bytes:
    """What follows the marker: the loader, the agent's modules and its `config`."""
    head, compressor = _packed_modules()
    compressor = compressor.copy()
    tail = f'"config": {json.dumps(config.to_json())}}}'.encode()
    packed = head + compressor.compress(tail) + compressor.flush()
    loader = (_LOADER.replace("ERROR", str(wire.ERROR)) + _IMPORTER).encode()
    return b"%08d%s%08d%s" % (len(loader), loader, len(packed), packed)


def home_payload(config: AgentConfig) -> str:
    """The agent's modules and its `config` as one word of plain characters."""
    packages = ["launcher", "launcher.agent"]
    body = {"modules": _sources(), "packages": packages, "config": config.to_json()}
    body["loader"] = _IMPORTER
    return base64.b64encode(zlib.compress(json.dumps(body).encode(), 6)).decode()


@cache
def _packed_modules() -> tuple[bytes, zlib._Compress]:
    """The modules, packed as far as they are the same for all hosts, and what packs the rest: for
    a thousand hosts, packing them each time took the launcher seven seconds."""
    body = json.dumps({"modules": _sources(), "packages": ["launcher", "launcher.agent"]})
    compressor = zlib.compressobj(6)
    head = compressor.compress(f"{body[:-1]}, ".encode())
    return head + compressor.flush(zlib.Z_SYNC_FLUSH), compressor


@cache
def _sources() -> dict[str, str]:
    folder = resources.files("launcher.agent")
    modules = {"launcher": "", "launcher.agent": ""}
    for file in folder.iterdir():
        if file.name.endswith(".py") and file.name != "__init__.py":
            modules[f"launcher.agent.{file.name[:-3]}"] = file.read_text()
    return modules
