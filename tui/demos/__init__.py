"""The demos: ready cluster files that show what the trainer can do."""

from __future__ import annotations

import sys
from pathlib import Path

from launcher.cluster.values import nearest_word
from launcher.errors import TfmuxError
from tui import extras
from tui.extras import Extra

_FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """All demos, the default one first."""
    found = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    return sorted(found, key=lambda name: name != "async")


def find(name: str) -> Path:
    """The cluster file of a demo.

    Raises:
        TfmuxError: there is none of that name; the nearest one is named.
    """
    if name in names():
        return _FOLDER / f"{name}.toml"
    near = "classic" if name in ("tutorial", "tutorials") else nearest_word(name, names())
    hint = f"did you mean {near}?" if near else "`tfmux demo --list` names them"
    raise TfmuxError(f"there is no demo {name!r}; {hint}")


def check_machine() -> None:
    """Checks that this machine can run the demos' tasks.

    Raises:
        TfmuxError: it is not Linux, or TensorFlow is not installed; says what to do.
    """
    if sys.platform != "linux":
        raise TfmuxError(
            "demos run their tasks on this machine, which must be Linux for that: "
            "launch a cluster file whose hosts have ssh"
        )
    extras.require(Extra.TRAINER, "demos")


def about(file: Path) -> str:
    """Description of a demo: the first comment of its file."""
    return file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
