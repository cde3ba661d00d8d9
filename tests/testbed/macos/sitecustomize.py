"""A Python that finds itself on macOS: no `/proc`, and none of what only Linux has.

Put on `PYTHONPATH`, it holds for a program and for what that starts with the same environment,
such as a launcher process. What these start without it (`-I`, or as a host of an SSH server that
has an environment of its own) is Linux, as hosts are. The kernel below is Linux all the same: what
macOS has in other forms (`LOCAL_PEERCRED`, kqueue) is not there.
"""

import importlib
import importlib.util
import os
import sys
import sysconfig
from types import ModuleType
from typing import Any

sysconfig.get_config_vars()  # from a file whose name has the platform in it
LINUX = {
    "os": (
        "copy_file_range epoll_create eventfd eventfd_read eventfd_write fdatasync getresuid "
        "getxattr listxattr memfd_create pidfd_open pipe2 posix_fadvise posix_fallocate "
        "removexattr sched_getaffinity sched_setaffinity setns setxattr splice unshare waitid "
        "EFD_CLOEXEC MFD_CLOEXEC O_PATH O_TMPFILE O_DIRECT P_PIDFD"
    ),
    "socket": (
        "AF_ALG AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC MSG_NOSIGNAL SOCK_CLOEXEC "
        "SOCK_NONBLOCK SO_BINDTODEVICE SO_PASSCRED SO_PEERCRED TCP_KEEPIDLE TCP_QUICKACK "
        "TCP_USER_TIMEOUT"
    ),
    "select": "epoll EPOLLIN EPOLLOUT EPOLLERR EPOLLHUP EPOLL_CLOEXEC POLLRDHUP",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX",
}
for module in ("os", "select", "signal", "socket"):  # in this order: socket looks into select
    for name in LINUX[module].split():
        vars(importlib.import_module(module)).pop(name, None)
sys.platform = "darwin"
_stat = os.stat


def _find_no_library(name: str, *arguments: Any) -> str:
    raise ValueError(f"dylib {name} could not be found")


if importlib.util.find_spec("ctypes.macholib") is None:  # Debian leaves it out of its Python
    for module in ("ctypes.macholib", "ctypes.macholib.dyld"):
        sys.modules[module] = ModuleType(module)
    vars(sys.modules["ctypes.macholib.dyld"])["dyld_find"] = _find_no_library


def _is_proc(path: object) -> bool:
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    return text == "/proc" or text.startswith(("/proc/", "/sys/", "/run/systemd"))


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and _is_proc(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def _stat_without_proc(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
    if _is_proc(path):
        raise FileNotFoundError(2, "No such file or directory", path)
    return _stat(path, *arguments, **options)


os.stat = _stat_without_proc
sys.addaudithook(_refuse)
