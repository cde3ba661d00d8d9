"""The kernel's count of processes that it has killed for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

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
