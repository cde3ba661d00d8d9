"""The agent's sockets: made beforehand by somebody else, cleaned away, wanted by two at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.agent import folders, wire
from tests.support.agent_client import Client, socket_path, state_folder
from tests.testbed import private_tmp

OTHER = 4242
"""The uid of another user of the host."""


@pytest.fixture
def before(testbed_possible: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What to put in front of a command so that it has a `/tmp` of the test's own."""
    state = Path("/dev/shm", f"tfmux-test-{os.urandom(4).hex()}")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        folder = state / name
        folder.mkdir(parents=True, mode=0o700)
        monkeypatch.setenv(name, str(folder))
    script = f"set -e\n{private_tmp.mounting()}\necho up\nexec sleep 1000"
    words = ["unshare", "-m", "sh", "-c", script]
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
            try:
                assert holder.stdout is not None and holder.stdout.readline() == b"up\n"
                yield ["nsenter", "-m", "-t", str(holder.pid), "--"]
            finally:
                holder.kill()
    finally:
        shutil.rmtree(state)


def inside(before: list[str], script: str) -> str:
    """What a shell script says there."""
    done = subprocess.run([*before, "sh", "-c", script], check=True, capture_output=True, text=True)
    return done.stdout


def admitted_at_once(run_id: str, before: list[str], count: int = 4) -> list[Client]:
    """Opens `count` channels to the run's agent at the same time; the agent's pid is one and the
    same for all."""
    found: list[tuple[Client, int]] = []
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            client = Client(run_id, before=before)
            found.append((client, client.hello(rules=None)["pid"]))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=connect) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len({pid for _, pid in found}) == 1, "more than one agent"
    return [client for client, _ in found]


def finish(clients: list[Client]) -> None:
    """Ends the run."""
    clients[0].hello()
    clients[0].kill()
    clients[0].leave()
    for client in clients[1:]:
        client.close()


def test_a_folder_of_another_user_locks_nobody_out(before: list[str]) -> None:
    """Given a `/tmp/tfmux-UID` of another user, when four bridges connect to a new run at once,
    then they share one agent, whose socket lies in a private folder of ours."""
    taken = f"/tmp/tfmux-{os.getuid()}"
    inside(before, f"mkdir -m 777 {taken} && chown {OTHER} {taken}")
    clients = admitted_at_once(f"t-{os.urandom(4).hex()}", before)
    assert inside(before, f"ls -A {taken}") == ""
    assert inside(before, f"stat -c '%a %u' {taken}-*") == f"700 {os.getuid()}\n"
    assert len(inside(before, f"ls {taken}-*/*.sock").split()) == 1
    finish(clients)


def test_the_folder_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a link and a file in the place of the agent's folder, when that is looked for, then a
    private one is made beside them and found again; without the link the usual name is taken."""
    monkeypatch.setattr(folders, "_TEMPORARY", str(tmp_path))
    name = f"tfmux-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{name}-1").write_text("")
    (tmp_path / f"{name}0-x").mkdir()
    found = folders.local_folder()
    assert Path(found).name.startswith(f"{name}-") and Path(found).stat().st_mode & 0o777 == 0o700
    assert folders.local_folder() == found
    Path(found).chmod(0o755)
    assert folders.local_folder() == found and Path(found).stat().st_mode & 0o777 == 0o700
    Path(found).rmdir()
    (tmp_path / name).unlink()
    assert folders.local_folder() == str(tmp_path / name)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("umask", ["077", "027", "000"])
def test_the_umask_of_the_login_is_the_tasks(umask: str) -> None:
    """Given a login with any umask, when a task is started there, then it has that umask, as at the
    login's prompt, and all that is the agent's own is private."""
    with Client(before=["sh", "-c", f'umask {umask}; exec "$@"', "sh"]) as client:
        client.hello()
        client.start("w:0", ["sh", "-c", "umask"])
        client.get(wire.EOF, task="w:0")
        client.follow("w:0")
        assert client.log_until(b"\n") == f"0{umask}\n".encode()
        run = state_folder(client.run_id)
        socket = Path(socket_path(client.run_id))
        ours = [run, *run.rglob("*"), socket, socket.with_suffix(".lock"), socket.parent]
        modes = {path: path.stat().st_mode & 0o077 for path in ours}
        client.kill()
        client.leave()
    assert not any(modes.values()), modes
