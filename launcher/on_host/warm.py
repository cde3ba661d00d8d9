"""Warm start of a Python program: imports modules, waits at a gate, then runs the program.

    python OPTIONS warm.py required|optional MODULE,… (-m NAME | -c CODE | SCRIPT) ARGUMENTS…

The gate is the standard input: the agent writes a byte when the task's stage has come. The program
finds what it would find without this script: its arguments, `sys.path`, `__main__`,
`/dev/null` as its input. Nothing of the standard library is imported here that Python has not
imported by itself: a file beside the program may have the same name. A `required` module that
cannot be imported ends the task; of an `optional` one the program itself will complain.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEY = "warm in [start] of the cluster file"


def pass_gate(kind: str, modules: list[str], words: list[str]) -> Any:
    """Imports the modules, with path and arguments as the program will find them, and waits. The
    importer of a program that is a folder or an archive; None for a script, `-m` and `-c`.

    Modules live as long as the process: the garbage collector neither runs meanwhile nor looks at
    them later, which saves a fifth of the processor time to the first step of TensorFlow.
    """
    option = words[0] in ("-m", "-c")
    importer = None if option else _importer(words[0])
    first = _first_path(words[0]) if importer is None else _full(words[0])
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = first
    elif importer is not None:
        sys.path.insert(0, first)
    if hasattr(sys, "orig_argv"):
        at = len(sys.orig_argv) - len(sys.argv)
        del sys.orig_argv[at : at + 3]
    sys.argv[:] = [words[0], *words[2:]] if option else words
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    for name in modules:
        _import(name, required=kind == "required")
    if gc.get_threshold()[0] == 0:  # otherwise a module has chosen its own
        gc.set_threshold(*thresholds)
    gc.freeze()
    _wait()
    return importer


def _first_path(word: str) -> str:
    if word == "-m":
        return os.getcwd()
    return "" if word == "-c" else os.path.dirname(os.path.realpath(word))


def _full(path: str) -> str:
    """A program's path as the interpreter has it."""
    if sys.version_info < (3, 9) or path.startswith("/"):
        return path
    return f"{os.getcwd()}/{path}"


def _importer(path: str) -> Any:
    for hook in sys.path_hooks:
        try:
            return hook(path)
        except ImportError:
            continue
    return None


def _import(name: str, *, required: bool) -> None:
    before = _activity()
    try:
        __import__(name)
    except (Exception, SystemExit) as error:
        if required:
            trace = error.__traceback__ and error.__traceback__.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            _end(f"cannot import {name}, which is listed in {_KEY}")
    if _activity() > before:
        _log(
            f"importing {name} has started a thread or a process before the task's stage: if "
            f"that is too early, remove it from {_KEY}"
        )


def _activity() -> int:
    """Number of threads that Python has started, and whether there are child processes."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return _thread._count()
    return _thread._count() + 1


def _wait() -> None:
    if not os.read(0, 1):  # its end alone may mean that the agent dies, and we in a moment
        _end(
            "a module, or a wrapper of the interpreter, has used the standard input of the waiting "
            "task: write warm = false in [start] of the cluster file"
        )
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _log(text: str) -> None:
    sys.stderr.write(f"tfmux: warm start: {text}\n")
    sys.stderr.flush()


def _end(text: str) -> None:
    _log(text)
    sys.exit(1)


def new_main(loader: Any) -> dict[str, Any]:
    """The namespace of a new module `__main__` in the place of this one."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    names.update(__builtins__=__builtins__, __annotations__={}, __loader__=loader)
    return names


def read_script(path: str, names: dict[str, Any]) -> Any:
    """Reads a script as the interpreter does; its code, or its source."""
    path = _full(path)
    names.update(__file__=path, __cached__=None)
    if path.endswith(".pyc"):
        from importlib.machinery import SourcelessFileLoader

        names["__loader__"] = SourcelessFileLoader("__main__", path)
        return names["__loader__"].get_code("__main__")
    names["__loader__"] = type(globals()["__loader__"])("__main__", path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        sys.stderr.write(
            f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        sys.exit(2)


if __name__ == "__main__":
    _words = sys.argv[3:]
    _place = pass_gate(sys.argv[1], sys.argv[2].split(","), _words)
    _main = new_main(sys.__loader__)
    try:
        if _words[0] == "-m" or _place is not None:
            import runpy  # the interpreter does so, too

            name = "__main__" if _words[0] != "-m" else _words[1]
            runpy._run_module_as_main(name, _words[0] == "-m")  # type: ignore[attr-defined]
        elif _words[0] == "-c":
            exec(compile(_words[1], "<string>", "exec", dont_inherit=True), _main)
        else:
            _code = read_script(_words[0], _main)
            if isinstance(_code, bytes):  # here: a traceback of a syntax error has no frame
                _code = compile(_code, _main["__file__"], "exec", dont_inherit=True)
            exec(_code, _main)
    except SystemExit:
        raise
    except BaseException as error:
        # The traceback of the program begins below this line's frame; the interpreter prints it,
        # by the hook that the program may have set.
        _trace, _hook = error.__traceback__ and error.__traceback__.tb_next, sys.excepthook
        sys.excepthook = lambda kind, value, _: _hook(kind, value.with_traceback(_trace), _trace)
        raise
