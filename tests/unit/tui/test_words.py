"""A word that is no command: the command that the words of other programs mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui.exits import Exit
from tui.main import main, parse


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("launch", "up"),
        ("start", "up"),
        ("stop", "kill"),
        ("list", "ps"),
        ("status", "ps"),
        ("lgos", "logs"),
    ],
)
def test_the_command_that_is_meant_is_named(
    word: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stop` is near to `open` in letters alone."""
    with pytest.raises(SystemExit) as end:
        main([word])
    assert end.value.code == Exit.USAGE
    assert f"did you mean '{command}'?" in capsys.readouterr().err


def test_a_word_that_is_near_to_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The help lists all commands."""
    with pytest.raises(SystemExit):
        main(["quit"])
    assert "see tfmux --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "command"),
    [(["--headless"], "up"), (["--json"], "up"), ([], "open")],
    ids=["headless", "json", "screen"],
)
def test_a_file_without_a_screen_is_launched(
    tmp_path: Path, words: list[str], command: str
) -> None:
    """Given a cluster file as the first word, when an option says that there is to be no screen,
    then the file is launched; without one it is opened."""
    file = tmp_path / "c.toml"
    file.write_text("name = 'c'\n")
    arguments = parse([str(file), *words])
    assert arguments.command == command
