"""Command line of `podman run`, and the root of containers without an image.

That root has folders of this machine, read-only. Podman lays a writable layer over it for each
container and removes the layer with the container, so one root serves all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..cluster.podman import Podman
from .engine import EngineError

_EMPTY = "dev etc home opt proc root run sys tmp usr var/tmp".split()
_SYSTEM = "bin sbin lib lib32 lib64 libx32".split()
_SHARED = ("/usr", "/etc", "/opt")


def run_command(
    table: Podman, root: Path, options: Sequence[str], program: Sequence[str]
) -> tuple[str, ...]:
    """The command that runs a program in a new container of the file's description.

    Raises:
        EngineError: a folder cannot be mounted.
    """
    begin = ("run", *options, f"--network={table.network}", *table.options, "--entrypoint=env")
    if table.image is not None:
        return (*begin, "--pull=never", table.image, *program)
    shared = (volume(path, str(path)) for path in shared_folders())
    return (*begin, *shared, "--rootfs", f"{_mountable(root)}:O", *program)


def volume(source: Path, target: str) -> str:
    """The option that shows a file or folder of this machine in a container, read-only.

    Raises:
        EngineError: podman cannot read the path.
    """
    return f"--volume={_mountable(source)}:{target}:ro"


def build_root(root: Path) -> None:
    """Makes the root, or what it lacks.

    Raises:
        OSError: it cannot be written.
    """
    for name in _EMPTY:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for name in _SYSTEM:
        original = Path("/", name)
        if original.is_symlink():
            with suppress(FileExistsError):  # another run may make the root, too
                (root / name).symlink_to(original.readlink())


def shared_folders() -> tuple[Path, ...]:
    """Folders of this machine that are in the containers, at the same places."""
    return tuple(_outermost(path for path in _candidates() if path.is_dir()))


def _candidates() -> Iterator[Path]:
    yield from map(Path, _SHARED)
    yield from (path for name in _SYSTEM if not (path := Path("/", name)).is_symlink())
    yield from map(Path, (sys.prefix, sys.base_prefix))


def _outermost(paths: Iterator[Path]) -> Iterator[Path]:
    """Those that are in no other one."""
    every = sorted(set(paths))
    return (path for path in every if not any(path.is_relative_to(o) for o in every if o != path))


def _mountable(path: Path) -> str:
    if ":" in str(path):
        raise EngineError(f"podman cannot mount {path}: there is a colon in its path")
    return str(path)
