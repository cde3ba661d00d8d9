"""Bootstrap of the agent on a host where nothing of ours is installed.

The command that a login shell sees is one line in single quotes, without a quote, `!` or line
break in it, so that bash, dash, csh, tcsh and fish read it alike. It prints a marker *before*
anything is sent: a `.bashrc` that reads its input or starts another shell would otherwise eat
the modules, or run them. Then comes a loader, and then the agent's modules, packed: as code
where the host's interpreter has the magic number of ours, else as source.
"""

from __future__ import annotations

import base64
import json
import marshal
import re
import shlex
import zlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.abc import InspectLoader
from importlib.util import MAGIC_NUMBER, find_spec
from types import CodeType
from typing import Any

from ..agent import wire
from .frames import AgentConfig

EVERY_BYTE = bytes(range(256))
"""All values of a byte, by which a stream shows that it changes none. No line break follows: what
waits for one holds our bytes back."""

_MARSHAL_VERSION = 4
"""Of what every interpreter reads; code is for those of our own version."""
_MAGIC = b"tfmux-agent-magic:"
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
import importlib.util, marshal, sys
modules = marshal.loads(packed)
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
        if isinstance(body, str):
            body = compile(body, "<" + module.__name__ + ">", "exec")
        exec(body, module.__dict__)
sys.meta_path.insert(0, Sent())
sys.dont_write_bytecode = True
from launcher.PACKAGE import MAIN
MAIN.main(config)
"""
_AGENT = ("agent", "start")
_PROGRAM = ("on_host", "program")
_PACKAGES = ("agent", "on_host")
ENGINE_LINE = (
    "import base64,marshal,sys,zlib;"
    "sent=marshal.loads(zlib.decompress(base64.b64decode(sys.stdin.readline())));"
    'packed,config=sent.pop("packed"),sent["config"];config["host"]=sys.argv[1];'
    'exec(sent["loader"])'
)
"""The program by which an engine starts an agent: its argument is the host's name, its input
`engine_payload` as a line."""


def marker(nonce: str) -> bytes:
    """The line that the host prints when its interpreter is ready, before `EVERY_BYTE`."""
    return f"tfmux-agent-{nonce}".encode()


def split_magic(before: bytes) -> tuple[bytes, bytes]:
    """What a host printed before the marker: the noise of its shell, and the magic number of its
    interpreter, empty where it has said none."""
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


def payload(config: AgentConfig, magic: bytes) -> bytes:
    """Bytes that follow the marker, for an interpreter with a `magic_number`: the loader with the
    agent's `config`, and the agent's modules."""
    return _payload(_AGENT, config.to_json(), magic, bytes([wire.ERROR]))


def program_payload(config: Mapping[str, Any], magic: bytes) -> bytes:
    """Bytes that follow the marker for the short program (`on_host`)."""
    return _payload(_PROGRAM, config, magic, b"")


def _payload(main: tuple[str, str], config: Mapping[str, Any], magic: bytes, head: bytes) -> bytes:
    packed = _packed(code=magic == MAGIC_NUMBER)
    loader = _LOADER.replace("HEAD", repr(head)).replace("CONFIG", repr(json.dumps(config)))
    line = (loader + _importer(main)).encode()
    return b"%08d%s%08d%s" % (len(line), line, len(packed), packed)


def _importer(main: tuple[str, str]) -> str:
    return _IMPORTER.replace("PACKAGE", main[0]).replace("MAIN", main[1])


def engine_payload(config: AgentConfig) -> str:
    """The source of the agent's modules, for interpreters that are not known yet, and its `config`
    as one word of plain characters."""
    packed = _marshalled(code=False)
    sent = {"packed": packed, "config": config.to_json(), "loader": _importer(_AGENT)}
    return base64.b64encode(zlib.compress(marshal.dumps(sent, _MARSHAL_VERSION))).decode()


@cache
def _packed(*, code: bool) -> bytes:
    """Packed once for all hosts: for a thousand of them it would take seconds."""
    return zlib.compress(_marshalled(code=code), 1)


def _marshalled(*, code: bool) -> bytes:
    """The modules that hosts get, by their names. All are one object, so that what they share is
    there once; code cannot be read by an interpreter of another version, so it is never among
    source."""
    modules: dict[str, str | CodeType] = {"launcher": ""}
    for package in _PACKAGES:
        modules[f"launcher.{package}"] = ""
        for file in resources.files(f"launcher.{package}").iterdir():
            stem = file.name.removesuffix(".py")
            if stem != file.name != "__init__.py":
                name = f"launcher.{package}.{stem}"
                modules[name] = _code(name) if code else file.read_text()
    return marshal.dumps(modules) if code else marshal.dumps(modules, _MARSHAL_VERSION)


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
