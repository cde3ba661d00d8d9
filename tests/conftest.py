"""Fixtures and hooks of all tests: private homes, the two testbeds, a watch for left processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import command, launches, requirements, tiers
from tests.support.budgets import SOAK
from tests.support.paths import REPOSITORY
from tests.support.requirements import require, require_testbed
from tests.testbed import guard, proc, slurm, sweeper
from tests.testbed.inprocess import SshServer
from tests.testbed.namespaces import Testbed
from tests.testbed.slurm import SlurmBed

pytest_plugins = [
    f"tests.support.fixtures.{name}"
    for name in ("clients", "hosts", "launcher", "terminal", "trainer")
]

# How long an example takes says more about the machine than about the code. What `examples` is not
# used for tries the same in each run, too.
settings.register_profile(
    "any machine",
    settings(derandomize=not SOAK, database=None),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

_SWEEPER = pytest.StashKey[subprocess.Popen[bytes]]()
_LAUNCHES = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Mark everything that this test session starts, and give it the signals of a terminal.

    A job that a script starts with `&` ignores SIGINT and SIGQUIT, one under `nohup` SIGHUP, and
    all children inherit it: what a test then sends to one of them has no effect.
    """
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist has the mark of its parent
        config.stash[_SWEEPER] = sweeper.watch()
    given: dict[str, str] = getattr(config, "workerinput", {})
    config.stash[_LAUNCHES] = launches.begin(Path(given["launches"]) if given else None)
    guard.mark_session()
    command.fork_launchers()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            interrupt = number is signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupt else signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let a worker of pytest-xdist count its launches in the file of all."""
    node.workerinput["launches"] = str(node.config.stash[_LAUNCHES])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many processes the tests have launched; with `-v` those of each file."""
    for line in launches.summary(config.stash[_LAUNCHES], files=config.option.verbose > 0):
        terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the count of launches away."""
    if not hasattr(config, "workerinput"):
        config.stash[_LAUNCHES].unlink(missing_ok=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--quick` and `--part`."""
    parser.addoption("--quick", action="store_true", help=f"only {tiers.names(tiers.QUICK)}")
    parser.addoption("--part", choices=tiers.PARTS, help="only the tests of `make PART`")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what this machine lacks, and that the tests that need it are skipped."""
    return [] if config.getoption("quick") else requirements.lacking()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, with `--quick`, the folders of all other tests."""
    tier = tiers.tier_of(collection_path)
    return True if config.getoption("quick") and tier and tier not in tiers.QUICK else None


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests with long texts: each name is sent several times."""
    if not isinstance(val, str | bytes) or len(val) <= 60:
        return None
    return f"{val[:40]!r}… of {len(val)}"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups when its turn comes
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests, and put those that share something on one worker."""
    part = config.getoption("part")
    chosen = {
        item: (SOAK or not item.get_closest_marker("soak")) and tiers.in_part(item, part)
        for item in items
    }
    config.hook.pytest_deselected(items=[item for item in items if not chosen[item]])
    items[:] = [item for item in items if chosen[item]]
    tiers.refuse_tensorflow()
    tiers.group(items)
    if all(tiers.tier_of(item.path) in tiers.QUICK for item in items):
        tiers.prepare_quick()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the tests without garbage collection, and spare each later one what the imports have
    left: half a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def _data() -> Path:
    default = REPOSITORY.parent / "shared" / "data" / "mnist10k"
    return Path(os.environ.get("TFMUX_TEST_DATA", default))


@pytest.fixture(autouse=True)
def tfmux_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home of its own, with all XDG directories in it.

    Always on: no test may read or write the files, keys or SSH agent of who runs it.
    """
    home = tmp_path / "home"
    for folder in (home, home / ".run"):  # the others are made by who needs them
        folder.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    for variable, name in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_RUNTIME_DIR", ".run"),
    ):
        monkeypatch.setenv(variable, str(home / name))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)  # who imports TensorFlow sets it
    return home


@pytest.fixture(autouse=True)
def no_process_left(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail a test that leaves a process of a run, a screen or a launcher behind on this machine,
    and kill it; and one of a folder whose tests start none, or are quick, that is otherwise."""
    if tiers.tier_of(request.path) in tiers.NO_PROCESS:
        with tiers.no_process_started(monkeypatch), tiers.no_time_spent(request):
            yield
        return
    began = proc.next_tick()
    yield
    found = guard.leaks(guard.all_here, began)
    if found:
        pytest.fail(f"the test left processes behind:\n{guard.describe(found)}", pytrace=False)


@pytest.fixture
def mnist() -> Path:
    """Return the directory of the real digits in IDX files."""
    folder = _data()
    if not folder.is_dir():
        pytest.skip(f"no MNIST files at {folder}; set TFMUX_TEST_DATA")
    return folder


@pytest.fixture
def testbed_possible() -> None:
    """For a test that builds testbeds itself."""
    require_testbed()


@pytest.fixture
def testbed(testbed_possible: None) -> Iterator[Testbed]:
    """Four freshly installed hosts with OpenSSH; up in half a second, gone after the test.

    The client's keys and configuration are not in the test's home until it calls
    `testbed.give_access(home)`.
    """
    data = _data()
    with Testbed(data if data.is_dir() else None) as hosts:
        yield hosts
        found = guard.leaks(hosts.processes)
    if found:
        pytest.fail(f"the test left processes on hosts:\n{guard.describe(found)}", pytrace=False)


@pytest.fixture
def slurm_bed() -> Iterator[SlurmBed]:
    """A Slurm cluster of four nodes, and `SLURM_CONF` set; up in two seconds."""
    require(slurm.missing())
    with SlurmBed() as bed:
        yield bed


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[SshServer]:
    """One host on the loopback, served by this process; needs no root."""
    with SshServer(tmp_path / "ssh") as server:
        yield server
