"""Makes an interpreter answer `tfmux stacks`, then gives way to the program's own `sitecustomize`.

Python imports this before the program, since its folder is the first on the `PYTHONPATH` of tasks.
From then on the interpreter writes the stacks of its threads into a file in memory when it gets a
real-time signal; `faulthandler` does that in C, so that it works inside of extensions and while the
interpreter's lock is held. `launcher/agent/stack_taker.py` sends the signal and reads the file,
which it finds by name and number. The program finds all as it would be without this file: its path,
its modules, `sitecustomize`. `TFMUX_STACKS=0` switches it off. Whatever fails here, the program
starts.
"""

import os
import sys

_NAME = "tfmux-stacks"
_NUMBERS = (987, 487, 237, 117)
"""Numbers for the descriptor: a program may count on the low ones. The first that is free."""


def _listen():
    # type: () -> None
    import _signal  # type: ignore[import-not-found]  # `signal` would import much more
    import faulthandler

    made = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    path = "/proc/self/fd/%d" % made  # noqa: UP031
    appending = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.close(made)
    number = _dup(appending)
    os.close(appending)
    if number:
        faulthandler.register(_signal.SIGRTMAX - 7, file=number, all_threads=True, chain=False)


def _dup(fd):
    # type: (int) -> int
    for number in _NUMBERS:
        try:
            os.fstat(number)
        except OSError:
            try:
                return os.dup2(fd, number, inheritable=False)
            except OSError:  # beyond `ulimit -n`
                continue
    return 0


if sys.version_info >= (3, 8) and os.environ.get("TFMUX_STACKS") != "0":
    try:
        _listen()
    except Exception:  # no such call here, or no descriptor is left
        pass
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != _here]
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
