"""Bootstrap: real interpreters, of the launcher's version and of others."""

from __future__ import annotations

import marshal
import os
import re
import shutil
import subprocess
import sys
import zlib
from glob import glob
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path
from types import CodeType

import pytest

from launcher.agent import start
from launcher.hosts import bootstrap
from launcher.hosts.bootstrap import LinkSettings
from tests.support.agent_client import Client, family
from tests.support.agent_frames import RULES
from tests.support.budgets import soak, variants
from tests.support.engine_agent import EngineAgent, find
from tests.support.patience import PATIENCE, wait_until

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
CONFIG = LinkSettings("r-1", "here", RULES, local=False).config()


def interpreter(minor: int) -> str:
    """A Python 3.`minor` of this machine."""
    named = [shutil.which(f"python3.{minor}"), *glob(f"{PYENV}/3.{minor}.*/bin/python3")]
    for path in filter(None, named):  # a shim of pyenv may stand for a version that is not chosen
        if subprocess.run([path, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    pytest.skip(f"no Python 3.{minor} on this machine")


OTHERS = [minor for minor in range(8, 14) if minor != sys.version_info.minor]


def modules(sent: bytes) -> dict[str, str | CodeType]:
    """The agent's modules in what a bridge was sent."""
    loader = 8 + int(sent[:8])
    packed = zlib.decompress(sent[loader + 8 :])
    assert int(sent[loader : loader + 8]) == len(sent) - loader - 8
    found, _ = marshal.loads(packed)
    assert isinstance(found, dict)
    return {name: marshal.loads(b) if isinstance(b, bytes) else b for name, b in found.items()}


def code_objects(code: CodeType) -> list[CodeType]:
    """A module's code with that of all its functions."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [code, *(deeper for c in inner for deeper in code_objects(c))]


def test_an_interpreter_of_our_version_gets_code() -> None:
    """An agent starts from it, and runs a task."""
    with Client() as client:
        assert isinstance(modules(client.sent)["launcher.agent.loop"], CodeType)
        client.hello()
        client.python("w:0", "print('ran')")
        client.follow("w:0")
        client.log_until(b"ran")
        client.kill()
        client.leave()


@variants("minor", OTHERS, test=1)
def test_an_interpreter_of_another_version_gets_source(minor: int) -> None:
    """An agent starts from it, and runs a task."""
    with Client(python=interpreter(minor)) as client:
        assert {type(body) for body in modules(client.sent).values()} == {str}
        client.hello()
        client.python("w:0", "print('ran')")
        client.follow("w:0")
        client.log_until(b"ran")
        assert client.kill()["survivors"] == []
        client.leave()


@pytest.mark.parametrize("minor", [sys.version_info.minor, OTHERS[0], *map(soak, OTHERS[1:])])
def test_a_home_starts_with_any_version(minor: int) -> None:
    """What an engine hands to its nodes is made before any of them is known."""
    run_id = f"t-{os.urandom(4).hex()}"
    started = EngineAgent(run_id, python=interpreter(minor))
    with find(run_id) as client:
        client.hello()
        client.leave()
    assert started.process.wait(PATIENCE) == 0
    wait_until(lambda: not family(run_id), "the end of the agent")


@pytest.mark.parametrize("said", [b"", b"Last login\n", b"tfmux-agent-magic:\n", b"A70D0D0A\n"])
def test_who_does_not_say_its_magic_number_gets_source(said: bytes) -> None:
    """Such as Python 2, which the loader then refuses."""
    assert bootstrap.split_magic(said) == (said, b"")
    sent = bootstrap.payload(CONFIG, b"")
    assert {type(body) for body in modules(sent).values()} == {str}


def test_the_magic_number_is_that_of_the_line_before_the_marker() -> None:
    """A login shell may print anything before it."""
    noise = b"tfmux-agent-magic:00000000\nhello\n"
    line = b"tfmux-agent-magic:" + MAGIC_NUMBER.hex().encode() + b"\n"
    assert bootstrap.split_magic(noise + line) == (noise, MAGIC_NUMBER)


def test_what_is_left_out_exists() -> None:
    """A module that was renamed would be sent again, to everybody who does not need it."""
    left_out = [name for names in bootstrap._NOT_SENT.values() for name in names]
    assert all(find_spec(f"launcher.{name}".rstrip(".")) for name in left_out)


def test_code_names_modules_and_not_our_files() -> None:
    """A path of this machine means nothing on a host, or another version of the file."""
    for name, body in modules(bootstrap.payload(CONFIG, MAGIC_NUMBER)).items():
        if isinstance(body, CodeType):
            assert {code.co_filename for code in code_objects(body)} == {f"<{name}>"}


@pytest.mark.parametrize("magic", [MAGIC_NUMBER, b""])
def test_tracebacks_name_module_and_line(magic: bytes) -> None:
    """The tracebacks are of a bridge that cannot make a path of its host's name."""
    broken = bootstrap.payload({**CONFIG, "host": "\0"}, magic)
    done = subprocess.run(
        bootstrap.argv(sys.executable, "r-1", "n"), input=broken, capture_output=True, check=False
    )
    found = re.search(rb'File "<launcher.agent.start>", line (\d+), in main', done.stderr)
    assert found, done.stderr
    source = Path(start.__file__).read_text().splitlines()
    assert "_connected(config" in source[int(found[1]) - 1]
