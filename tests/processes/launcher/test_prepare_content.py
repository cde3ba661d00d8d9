"""What `prepare` lines run again for."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.on_host.prepare import content, run


def test_lines_with_the_hosts_python_run_again_for_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines that do not name the interpreter do not run again."""
    install = ["${TFMUX_PYTHON} -m pip install numpy"]
    other = ["conda install numpy"]
    monkeypatch.setenv("TFMUX_PYTHON", "python3.11")
    before = content(install, ""), content(other, "")
    assert content(install, "") == before[0]
    monkeypatch.setenv("TFMUX_PYTHON", "python3.12")
    assert content(install, "") != before[0]
    assert content(other, "") == before[1]


def test_a_file_that_may_not_be_read_counts_by_size_and_time(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """The file may have nothing to do with the lines that name its directory."""
    monkeypatch.chdir(home)
    secret = Path("secret")
    secret.write_text("a")
    secret.chmod(0)
    before = content(["pip install ."], "")
    assert content(["pip install ."], "") == before
    secret.chmod(0o600)
    secret.write_text("other")
    secret.chmod(0)
    assert content(["pip install ."], "") != before


@pytest.mark.parametrize(
    "lines",
    [
        ["cat > out <<END", "one", "END", "true"],
        ["printf 'one", "' > out", "true"],
        ["case x in", "x) echo one > out;;", "esac"],
        ["echo \\", "one > out"],
        ["cd .", "for word in one", "do echo $word > out", "done"],
        ["echo one > out", "test -s out"],
    ],
    ids=["here-document", "quote", "case", "backslash", "loop", "whole"],
)
def test_lines_that_belong_together_run_as_they_are_written(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are one script; each is printed, and the first that fails ends it."""
    monkeypatch.chdir(home)
    assert run(lines) == 0
    assert Path("out").read_text() == "one\n"
    assert capfd.readouterr().out.splitlines() == [f"+ {line}" for line in lines]
    assert run([*lines, "exit 7", "rm out"]) == 7 and Path("out").exists()
