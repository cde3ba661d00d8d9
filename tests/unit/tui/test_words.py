"""A word that is no command: the command that the words of other programs mean."""

from __future__ import annotations

import pytest

from tui.exits import Exit
from tui.main import main


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
