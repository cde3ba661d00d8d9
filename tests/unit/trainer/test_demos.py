"""The demos' cluster files fit the trainer."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest

from tests.support.paths import REPOSITORY
from trainer import flags
from trainer.modes import MODES

DEMOS = REPOSITORY / "tui" / "demos"


def modes(path: pathlib.Path) -> set[str]:
    """The modes that a demo's commands run; its flags are read as the trainer does."""
    file = tomllib.loads(path.read_text())
    found = set()
    for table in (file["run"], *file["jobs"].values()):
        command = table.get("command", [])
        if "{trainer}" in command:  # behind an interpreter, and perhaps a shell that runs it
            words = [_filled(word) for word in command[command.index("{trainer}") + 1 :]]
            found.add(flags.parse(words)[0].name)
    return found


def _filled(word: str) -> str:
    """A word of a command with values for the placeholders that the trainer checks."""
    word = re.sub(r"\{address[^}]*\}", "localhost", word)
    return re.sub(r"\{(port[^}]*|index)\}", "1", word)


@pytest.mark.parametrize("path", sorted(DEMOS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_trainer_takes_a_demos_flags(path: pathlib.Path) -> None:
    """A demo runs a mode of the trainer, and says in its first line what it shows."""
    assert modes(path)
    assert re.match(r"# \S.{20,98}\n", path.read_text())


def test_every_mode_has_a_demo() -> None:
    """All modes are shown by a demo, but `convert`, which is no training, and `tf1`, which runs
    programs of the user's."""
    shown = set().union(*(modes(path) for path in DEMOS.glob("*.toml")))
    assert shown == set(MODES) - {"convert", "tf1"}
