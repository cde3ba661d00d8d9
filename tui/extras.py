"""Extras: dependencies that are installed on request, `pip install 'tfmux[NAME]'`.

Without them there are launcher and UI. Whether one is installed is looked up, not imported.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from launcher.errors import TfmuxError

_FIRST_WITHOUT_TENSORFLOW = (3, 14)


class Extra(StrEnum):
    """An optional dependency group of the installed package (`pip install tfmux[web]`)."""

    TRAINER = "trainer"
    WEB = "web"


MODULES = {
    Extra.TRAINER: ("tensorflow", "tensorboard", "numpy"),
    Extra.WEB: ("aiohttp", "textual_serve"),
}
"""Top-level modules of each extra."""


def missing(extra: Extra) -> list[str]:
    """Lists the modules of an extra that this interpreter does not find."""
    return [name for name in MODULES[extra] if not _is_found(name)]


def require(extra: Extra, purpose: str) -> None:
    """Checks that an extra is installed; `purpose` is what needs it, in the plural.

    Raises:
        TfmuxError: it is not; says how to install it.
    """
    absent = missing(extra)
    if not absent:
        return
    what = f"{purpose} need {absent[0]}, which is not installed"
    if extra is Extra.TRAINER and sys.version_info >= _FIRST_WITHOUT_TENSORFLOW:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise TfmuxError(
            f"{what}: TensorFlow 2.21 has no wheel for Python {version}; "
            f"install 'tfmux[{extra}]' with Python 3.11, 3.12 or 3.13"
        )
    raise TfmuxError(f"{what}: {_install_command(extra)}")


def _install_command(extra: Extra) -> str:
    by_pipx = Path(sys.prefix).parent.parts[-2:] == ("pipx", "venvs")
    wanted = f"'tfmux[{extra}]'"
    return f"pipx inject tfmux {wanted}" if by_pipx else f"pip install {wanted}"


def _is_found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # a finder refuses it, or the module is set to None
        return False
