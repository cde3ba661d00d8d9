"""Warm start of a Python task: its interpreter imports modules while it waits for its stage.

The command is taken apart as `python` itself does it, and put together with the runner
(`on_host/warm.py`) in front of the program: the interpreter keeps its options, the program
its arguments.
"""

from __future__ import annotations

import re

from .model import HostFacts, WarmStart

TRAINER_MODULES = ("tensorflow",)
"""Slow imports of the bundled trainer."""
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_FLAGS = "bBdEIOPqRsSuv"
"""Options of the interpreter without a value, which may stand in one word."""
_WITH_VALUE = "WX"
_PROGRAM = "mc"


def warm_start(
    argv: tuple[str, ...], python: str, key: bool | tuple[str, ...], facts: HostFacts
) -> WarmStart | None:
    """Makes the warm start of a command, by the `[start] warm` of the file.

    None: the command is no Python program, or `warm = true` means only the bundled trainer and
    this is not it. `python` is what `{python}` means on the host.
    """
    if not key or (argv[0] != python and not _PYTHON.fullmatch(argv[0])):
        return None
    words = split_python(argv)
    if words is None:
        return None
    options, program = words
    if not isinstance(key, bool):
        # The file names them: one that is missing is an error.
        kind, modules = "required", key
    elif _is_trainer(program, f"{facts.trainer}/trainer"):
        kind, modules = "optional", TRAINER_MODULES
    else:
        return None
    runner = (f"{facts.tools}/warm.py", kind, ",".join(modules))
    return WarmStart(modules, tuple((word,) for word in (argv[0], *options, *runner, *program)))


def _is_trainer(program: tuple[str, ...], folder: str) -> bool:
    return program[0] == folder or program[:2] == ("-m", "trainer")


def split_python(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The options of the interpreter, and its program: `-m NAME`, `-c CODE` or a script, with
    arguments. None where there is none, or an option is not known."""
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        word = argv[at]
        name = word.lstrip("-" + _FLAGS)  # behind flags that stand in the same word: -um
        if word == "-" or word.startswith("--"):
            return None  # a program on standard input, --help
        if name[:1] in _WITH_VALUE and name:
            at += 1 if len(name) > 1 else 2
        elif name[:1] in _PROGRAM and name:
            flags = word[: -len(name)]
            value = (name[1:],) if len(name) > 1 else ()
            program = (f"-{name[0]}", *value, *argv[at + 1 :])
            options = (*argv[1:at], *((flags,) if len(flags) > 1 else ()))
            return (options, program) if len(program) > 1 else None
        elif name:
            return None
        else:
            at += 1
    return (argv[1:at], argv[at:]) if at < len(argv) and argv[at] else None
