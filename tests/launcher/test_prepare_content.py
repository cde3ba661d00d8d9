"""What `prepare` lines run again for."""

from __future__ import annotations

import pytest

from launcher.remote_scripts.prepare import content


def test_lines_with_the_hosts_python_run_again_for_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that do not name it do not."""
    install = ["${TFMUX_PYTHON} -m pip install numpy"]
    other = ["conda install numpy"]
    monkeypatch.setenv("TFMUX_PYTHON", "python3.11")
    before = content(install, ""), content(other, "")
    assert content(install, "") == before[0]
    monkeypatch.setenv("TFMUX_PYTHON", "python3.12")
    assert content(install, "") != before[0]
    assert content(other, "") == before[1]
