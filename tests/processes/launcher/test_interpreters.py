"""Interpreters of hosts: how an agent comes to one, which one is offered, and what it imports."""

from __future__ import annotations

import json
import marshal
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Mapping
from glob import glob
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path
from types import CodeType

import jsonschema
import pytest

from launcher.agent import start
from launcher.cluster.read import load
from launcher.hosts import bootstrap
from launcher.hosts.bootstrap import LinkSettings
from launcher.ids import new_run_id
from launcher.on_host import probe
from launcher.paths import installed_scripts
from launcher.preflight import report_schema
from launcher.store.runs import RunFolder
from tests.support.agent_client import Client, family
from tests.support.agent_frames import RULES
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.support.engine_agent import EngineAgent, find
from tests.support.environments import environment
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


STACKS = f"{installed_scripts()}/stacks"
LOOKS_AROUND = """
import os, sys
print(sys.argv, sys.path, sys.flags, sys.orig_argv)
print(__name__, __doc__, __package__, type(__loader__).__name__, __spec__ and __spec__.name)
print(globals().get("__file__"), sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print("sitecustomize" in sys.modules, getattr(sys.modules.get("sitecustomize"), "__file__", None))
print(os.getcwd(), sys.excepthook is sys.__excepthook__, getattr(sys, "mine", None))
print([name for name in sys.modules if "stacks" in name], sorted(os.listdir("/proc/self/fd"))[:4])
"""
PROGRAMS = {
    "looks.py": LOOKS_AROUND,
    "raises.py": "def fail():\n    raise ValueError('no')\nfail()\n",
    "broken.py": "x = = 1\n",
    "exits.py": "import sys\nsys.exit(7)\n",
    "dies.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "package/__main__.py": LOOKS_AROUND,
    "imports.py": "import sitecustomize\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").mkdir()
    return tmp_path


def ran(
    folder: Path, words: tuple[str, ...], path: str, env: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """How a program ended and what it wrote."""
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


FORMS = [
    ("looks.py", "a", "b"),
    ("-m", "looks", "a"),
    ("-c", LOOKS_AROUND, "a"),
    ("package",),
    ("-P", "looks.py"),
    ("-S", "-c", "import sys; print(sys.argv)"),
    ("-I", "looks.py"),
    ("raises.py",),
    ("broken.py",),
    ("exits.py",),
    ("dies.py",),
    ("imports.py",),
    ("missing.py",),
]
OWN = {
    "none": None,
    "one that says something": "import sys\nsys.mine = __name__, __file__, sys.path[:2]\n",
    "one that fails": "import sys\nsys.mine = 1\n1 / 0\n",
    "one that lacks a module": "import not_there\n",
}


@pytest.mark.parametrize("words", FORMS, ids=" ".join)
def test_a_program_is_as_without_it(folder: Path, words: tuple[str, ...]) -> None:
    """Arguments, path, `__main__`, exit status and tracebacks."""
    assert ran(folder, words, f"{STACKS}:{folder}/own") == ran(folder, words, f"{folder}/own")


@pytest.mark.parametrize("own", OWN)
def test_a_sitecustomize_of_the_users_own_is_run(folder: Path, own: str) -> None:
    """The user's own file is the module of that name, and its complaints are reported as ever."""
    if (text := OWN[own]) is not None:
        (folder / "own" / "sitecustomize.py").write_text(text)
    with_ours = ran(folder, ("looks.py",), f"{STACKS}:{folder}/own")
    assert with_ours == ran(folder, ("looks.py",), f"{folder}/own")
    assert ("own/sitecustomize.py" in with_ours[1]) == (own == "one that says something")


CAUGHT = """
status = open("/proc/self/status").read().split("SigCgt:")[1].split()[0]
print(int(status, 16) >> 56 & 1)
"""


def test_it_can_be_switched_off_and_needs_a_descriptor(folder: Path) -> None:
    """And where there is none for it the program starts all the same."""
    assert signal.SIGRTMAX - 7 == 57
    assert ran(folder, ("-c", CAUGHT), STACKS)[1] == "1\n"
    assert ran(folder, ("-c", CAUGHT), STACKS, {"TFMUX_STACKS": "0"})[1] == "0\n"
    limited = f"ulimit -n 100; exec {sys.executable} -c '{CAUGHT}'"
    done = subprocess.run(
        ["sh", "-c", limited], env={**os.environ, "PYTHONPATH": STACKS}, capture_output=True
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"0\n", b"", 0)


def test_interpreters_that_a_program_starts_have_it_too(folder: Path) -> None:
    """Launchers such as torchrun start the programs in which people want to look."""
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CAUGHT!r}])"
    assert ran(folder, ("-c", script), STACKS)[1] == "1\n"


def offered(module: str = "tensorflow", *known: str) -> list[str]:
    """The interpreters that are found in this home."""
    found = probe.pythons({"modules": [module], "known": known})["found"]
    assert all(version == ".".join(map(str, sys.version_info[:3])) for _, version in found)
    home = str(Path.home())
    return [path for path, _ in found if path.startswith((home, "~")) or path in known]


PLACES = (
    *("venv", "venv-tf", ".venv", "tf-env", ".virtualenvs/tf", "project/.venv"),
    *(".pyenv/versions/3.11.7", "miniconda3", "miniforge3/envs/tf", ".conda/envs/tf"),
)


@pytest.mark.parametrize("place", PLACES)
def test_the_usual_places(place: str, tfmux_home: Path) -> None:
    """A module is looked for in each; one that is nowhere is not found."""
    program = environment(Path.home() / place, "some_module")
    assert offered("some_module") == [str(program)]
    assert offered("another_module") == []


def test_what_is_not_offered(tfmux_home: Path) -> None:
    """Given an environment whose program is anybody's to change, one that does not run, and one
    that has the folder but not the module, then none of them is started or named."""
    told = Path.home() / "told"
    for name, text in {
        "venv-open": f"#!/bin/sh\ntouch {told}\n",
        "venv-broken": "no program",
    }.items():
        program = environment(Path.home() / name)
        program.unlink()
        program.write_text(text)
        program.chmod(0o777 if name == "venv-open" else 0o755)
    assert offered() == []
    assert not told.exists()


def test_the_last_used_one_comes_first(tfmux_home: Path) -> None:
    """Where it still has the module."""
    environment(Path.home() / "venv")
    used = environment(Path.home() / "elsewhere/deep/tf")
    assert offered("tensorflow", "/nowhere/python", str(used))[0] == str(used)


def test_a_check_names_it(tfmux_home: Path, tmp_path: Path) -> None:
    """Given a cluster whose Python has no TensorFlow, and an environment in the home that has it,
    then text and JSON say its path; given that an earlier run of this machine has used another
    one, then that is offered."""
    lacks = environment(Path.home() / "lacks", "nothing")
    program = environment(Path.home() / "venv")

    def text(python: Path) -> str:
        hosts = {"localhost": {"python": str(python)}}
        return cluster_text({"worker": 1}, hosts=hosts, command=["{python}", "-c", "pass"])

    file = write(tmp_path, text(lacks))
    done = run("check", str(file))
    assert f'→ write python = "{program}" for the host: that one has TensorFlow' in done.stdout
    used = environment(Path.home() / "elsewhere/deep/tf")
    (tmp_path / "earlier").mkdir()
    earlier = write(tmp_path / "earlier", text(used))
    RunFolder.create(new_run_id("earlier"), earlier.read_text(), load(earlier))
    found = json.loads(run("check", str(file), "--json").stdout)
    jsonschema.validate(found, report_schema())
    offers = {each["check"]: each["offer"] for each in found["findings"] if each["offer"]}
    assert offers == {"tensorflow": str(used)}
    assert os.access(offers["tensorflow"], os.X_OK)


@variants(
    "line",
    [
        "from launcher.hosts.ways import ssh_connector; ssh_connector()",
        "import tui.commands.run",
        "import launcher.preflight.preflight",
    ],
    test=1,
)
def test_no_program_is_started_for_a_login(line: str) -> None:
    """`ctypes` would have `ldconfig`, a compiler and linkers look for libraries that asyncssh can
    use and few machines have."""
    watch = (
        "import sys\n"
        "sys.addaudithook(lambda event, args: event == 'subprocess.Popen' and print(args[0]))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", watch + line], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == ""


COMMAND = """
import tui.main
tui.main.main(["demo", "--list"])
from launcher.hosts.ways import ssh_connector
ssh_connector()
"""
LAUNCHER = """
import socket, launcher.process.entry
link, other = socket.socketpair()
other.close()
launcher.process.entry.main([str(link.detach()), "ssh"])
"""


@pytest.mark.parametrize("code", [COMMAND, LAUNCHER], ids=["command", "launcher process"])
def test_no_login_waits_for_certificates_that_openssh_lacks(code: str) -> None:
    """X.509 certificates would take a sixth of what asyncssh takes to import."""
    code += "import sys; print('asyncssh' in sys.modules, 'cryptography.x509' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split()[-2:] == ["True", "False"]


def test_a_program_that_imports_the_launcher_may_import_certificates() -> None:
    """Given a program that logs in to hosts as `collect` does, when it then imports asyncssh's
    certificates, which need pyOpenSSL, then Python looks for them as ever."""
    code = "import sys; from launcher.hosts.ways import ssh_connector; ssh_connector()\n"
    code += "print(sys.modules.get('asyncssh.crypto.x509', 'is looked for'))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == "is looked for\n"


def test_planning_imports_neither_the_trainer_nor_tensorflow() -> None:
    """The trainer is only looked for."""
    code = (
        "import sys, pathlib; from launcher.cluster.read import loads\n"
        "from launcher.plan.planner import make_plan\n"
        'text = \'[jobs.a]\\ntasks = ["localhost:1"]\\ncommand = ["a"]\'\n'
        "plan = make_plan(loads(text, 'c', pathlib.Path('/')), 'r')\n"
        "assert plan.tasks[0].env['PYTHONPATH']\n"
        "print([m for m in ('trainer', 'tensorflow', 'textual') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
