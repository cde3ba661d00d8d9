"""The disk of a testbed's host: a directory tree that becomes the root of its mount namespace.

Nothing of the machine shows on it but the system's programs (read-only), a Python of its own
and the test data. The repository, the runner's home and `/tmp` are not there at all, so
staging that only seems to work on one machine fails here. The disk survives a crash of the
host, as a disk does, and a test can read it while the host is down.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement

from tests.testbed import TestbedError

ENVIRONMENT = "/opt/tf"
PYTHON = f"{ENVIRONMENT}/bin/python"
DATA = "/opt/data"
_PACKAGES = "/opt/packages"
_MACHINE_ETC = "/.etc"
# What the host takes of the machine's /etc, where it is there; the rest it has of its own.
_TAKEN_ETC = (
    "alternatives bash.bashrc csh.cshrc csh.login csh.logout debian_version default fish gai.conf"
    " host.conf inputrc ld.so.cache ld.so.conf ld.so.conf.d locale.alias localtime login.defs"
    " nsswitch.conf os-release pam.d profile profile.d protocols python3 python3.11 security"
    " services shells skel ssl terminfo timezone zsh"
).split()
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass(frozen=True)
class Account:
    """Who logs in on a host. Root's home is not `/root`, so that a launcher that takes its own
    home for the host's is found out."""

    name: str
    uid: int
    home: str
    shell: str = "/bin/bash"


ROOT = Account("root", 0, "/home/root")
USER = Account("tfuser", 41077, "/home/tfuser")


def build(root: Path, account: Account) -> None:
    """Lay an empty disk out below `root`, which must not exist yet."""
    for name in (
        f"usr var/log var/lib var/tmp run proc sys dev etc/ssh home tmp {ENVIRONMENT[1:]}"
        f" {_PACKAGES[1:]} {DATA[1:]} {_MACHINE_ETC[1:]}"
    ).split():
        _folder(root / name)
    if not _prefix().is_relative_to("/usr"):
        _folder(inside(root, str(_prefix())))
    for name in _SYSTEM:
        original = Path("/", name)
        if original.is_symlink():
            (root / name).symlink_to(os.readlink(original))
        elif original.is_dir():
            _folder(root / name)
    for entry in _TAKEN_ETC:
        if Path("/etc", entry).exists():
            (root / "etc" / entry).symlink_to(f"{_MACHINE_ETC}/{entry}")
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for each in {ROOT, account}:
        make_home(root, each)


def make_environment(folder: Path) -> None:
    """Make a virtual environment with TensorFlow and what it needs, for hosts' `ENVIRONMENT`.

    The interpreter's library has an absolute path in it, so the installation keeps its place
    on the disk; only the packages move, as links to those of the running environment.
    """
    home = _prefix() / "bin"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    for each in (folder, folder / "bin", site):
        _folder(each)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(home / version)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    others = (name for name in ("jax", "torch") if importlib.util.find_spec(name))
    for entry in _entries("tensorflow", "tensorboard", "tf_keras", *others):
        (site / entry).symlink_to(f"{_PACKAGES}/{entry}")


def make_home(root: Path, account: Account) -> Path:
    """Make the account's empty home, with nothing in it but what a login needs."""
    home = inside(root, account.home)
    _folder(home, 0o700)
    os.chown(home, account.uid, account.uid)
    return home


def write_accounts(root: Path, account: Account) -> None:
    """Write passwd, group and shadow: the machine's system users and the one who logs in."""
    etc = root / "etc"
    kept = {
        name: [
            line
            for line in Path("/etc", name).read_text().splitlines()
            if line.split(":")[0] not in (ROOT.name, USER.name)
        ]
        for name in ("passwd", "group")
    }
    ours = {each.name: each for each in (ROOT, account)}.values()
    for each in ours:
        ids = f"{each.uid}:{each.uid}"
        kept["passwd"].insert(0, f"{each.name}:x:{ids}:{each.name}:{each.home}:{each.shell}")
        kept["group"].insert(0, f"{each.name}:x:{each.uid}:")
    # '*' is a password that nothing matches; '!' would also lock out logins by key.
    shadow = [f"{line.split(':')[0]}:*:19000:0:99999:7:::" for line in kept["passwd"]]
    for name, lines in (*kept.items(), ("shadow", shadow)):
        (etc / name).write_text("\n".join(lines) + "\n")
    (etc / "shadow").chmod(0o600)


def mount_script(root: Path, fixed: Mapping[str, Path], shares: Mapping[str, Path]) -> str:
    """Return the shell commands that turn `root` into `/` of the present mount namespace.

    They leave the shell on the new root with the old one still mounted above it, for the
    caller to do what needs the machine's files, then `pivot_root . . && umount -l .`.

    Args:
        root: the disk.
        fixed: the machine's directories that the host sees read-only, by the host's path.
        shares: those that it may write to.
    """
    disk = shlex.quote(str(root))
    lines = [
        "set -eu",
        f"mount --bind {disk} {disk}",  # pivot_root wants a mount point
        f"cd {disk}",
        *(_bind(Path("/", name)) for name in ("usr", *_SYSTEM) if _is_folder(Path("/", name))),
        _bind(Path("/etc"), _MACHINE_ETC),
        _bind(_site_packages(), _PACKAGES),
        "mount -t proc -o nosuid,nodev,noexec proc proc",
        "mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys",
        "mount -t tmpfs -o mode=755 tmpfs run",
        "mkdir run/sshd",
        "mount -t tmpfs -o mode=755 tmpfs dev",
        "mkdir dev/pts dev/shm",
        "mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts",
        "mount -t tmpfs -o mode=1777 tmpfs dev/shm",
        "ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd",
        "ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr",
    ]
    for name in _DEVICES:
        lines.append(f": > dev/{name}; mount --bind /dev/{name} dev/{name}")
    if not _prefix().is_relative_to("/usr"):
        lines.append(_bind(_prefix(), str(_prefix())))
    lines += [_bind(source, target) for target, source in fixed.items()]
    for target, source in shares.items():
        lines.append(f"mount --bind {shlex.quote(str(source))} {shlex.quote('.' + target)}")
    return "\n".join(lines) + "\n"


def python_folders() -> dict[str, str]:
    """Return where the machine's Python and its packages stand on a host, besides `/usr`."""
    folders = {str(_site_packages()): _PACKAGES}
    if not _prefix().is_relative_to("/usr"):
        folders[str(_prefix())] = str(_prefix())
    return folders


def inside(root: Path, path: str) -> Path:
    """Return where the host's absolute `path` lies on its disk."""
    return root / path.lstrip("/")


def wipe(root: Path) -> None:
    """Remove a disk if there is one, unless something is mounted below it in this namespace.

    The machine's `/usr` may be bound there; that it is not is looked up, never assumed.
    """
    if not root.exists():
        return
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4].encode().decode("unicode_escape")  # a blank is "\\040" there
        if Path(place).is_relative_to(root):
            raise TestbedError(f"{place} is a mount point; {root} is left as it is")
    shutil.rmtree(root)


@cache
def _entries(*names: str) -> frozenset[str]:
    """Return the top-level names in site-packages of these packages and all that they need."""
    entries: set[str] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        record = distribution.read_text("RECORD") or ""
        entries |= {line.split(",")[0].split("/")[0] for line in record.splitlines()}
        for text in distribution.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return frozenset(
        entry for entry in entries if entry not in ("..", "__pycache__") and entry[-4:] != ".pth"
    )


def _site_packages() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise TestbedError("TensorFlow is not installed beside the tests")
    return Path(spec.origin).parent.parent


def _prefix() -> Path:
    return Path(sys.base_prefix)


def _bind(source: Path, target: str | None = None) -> str:
    place = "." + (target or str(source))
    return f"mount -o bind,ro {shlex.quote(str(source))} {shlex.quote(place)}"


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _folder(path: Path, mode: int = 0o755) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
