"""The kernel's count of processes that it has killed for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.agent.kernel_log import killed_for_memory, own_lines
from launcher.agent.processes import oom_kills

EVENTS = "low 0\nhigh 4\nmax 9\noom 3\noom_kill {}\noom_group_kill 0\n"
SECOND = "0::/user.slice/user-0.slice/session-3.scope\n"
FIRST = "9:cpu,cpuacct:/x\n4:memory:/docker/77\n1:name=systemd:/y\n"


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        (SECOND, {"user.slice/user-0.slice/session-3.scope/memory.events": EVENTS.format(2)}, 2),
        (SECOND, {"user.slice/memory.events": EVENTS.format(5)}, 5),
        (SECOND, {"memory.events": EVENTS.format(6)}, 6),
        (FIRST, {"memory/docker/77/memory.oom_control": "under_oom 0\noom_kill 3\n"}, 3),
        (FIRST, {"memory/docker/77/memory.oom_control": "under_oom 0\n"}, 8),
        (SECOND, {}, 8),
        ("", {}, 8),
        ("nonsense\n::\n", {"memory.events": "oom_kill many\n"}, 8),
    ],
)
def test_the_nearest_count_is_taken(
    tmp_path: Path, own: str, files: dict[str, str], count: int
) -> None:
    """Given what a host's kernel shows of control groups, then the count is that of the nearest one
    that has any, else the host's."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    (tmp_path / "proc/vmstat").write_text("pgfault 7\noom_kill 8\nswap_ra 0\n")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert oom_kills(str(tmp_path / "proc"), str(tmp_path / "groups")) == count


def test_a_host_that_says_nothing_counts_none(tmp_path: Path) -> None:
    """Given a kernel without any of this, then nothing was killed."""
    assert oom_kills(str(tmp_path), str(tmp_path)) == 0
    assert oom_kills() >= 0


KILLED = (
    b"<3>[28420.063241] Memory cgroup out of memory: Killed process 11192 (python3) total-vm:8kB"
)
GLOBAL = b"<3>[  99.000001] Out of memory: Killed process 77 (py thon) total-vm:8kB, UID:0"


@pytest.mark.parametrize(
    ("log", "victims"),
    [
        (b"", set()),
        (b"<6>[ 1.0] usb 1-1: new device\n" + KILLED + b"\n" + GLOBAL + b"\n", {11192, 77}),
        (KILLED.replace(b"<3>", b"<11>"), set()),
        (KILLED.replace(b"11192", b"9" * 5000), set()),
        (KILLED.replace(b"11192", b"-1"), set()),
        (KILLED[25:], set()),
        (b"<3>[1.0] Killed process 5 (x)", set()),
        (b"\xff<\x00>Killed process " * 9999, set()),
    ],
)
def test_the_kernels_log_names_whom_it_has_killed(
    tmp_path: Path, log: bytes, victims: set[int]
) -> None:
    """Given lines of the kernel's log, then its own lines about want of memory count, and neither
    those that programs have written into it nor torn ones."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    assert killed_for_memory(str(tmp_path), lambda: own_lines(log)) == victims


def test_the_log_of_a_container_counts_for_nothing(tmp_path: Path) -> None:
    """Given a namespace of processes that is not the kernel's first one, then its log is not read:
    its numbers are those of other processes."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532999]")
    for proc in (tmp_path, tmp_path / "no"):
        assert killed_for_memory(str(proc), lambda: own_lines(KILLED)) == set()
