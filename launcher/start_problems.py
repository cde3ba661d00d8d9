"""Sentences about programs that cannot be started, from the values that hosts find."""

from __future__ import annotations

from .agent.executables import MOST_OF_WORD, ProgramProblem
from .quantities import size

_LONGEST_PATH = 120
"""Characters of a `PATH` that are shown."""
_NO_FIRST_LINE = "it is text whose first line names no interpreter: #!/bin/sh"
_WINDOWS = "its lines end as in Windows: sed -i 's/\\r$//' FILE"


def problem_text(problem: ProgramProblem) -> str:
    """Writes a sentence about a program that cannot be started; who named its file knows the
    host."""
    text = _text(problem)
    if problem.script:
        return f"{problem.script}: its first line names {problem.file}: {text}"
    return text


def _text(problem: ProgramProblem) -> str:
    kind, file, about, _ = problem
    match kind:
        case "not-in-path":
            return f"{file} is not in PATH ({_path(about)})"
        case "missing":
            return f"{file}: no such file"
        case "dangling":
            return f"{file} is a link to {about}, which does not exist"
        case "directory":
            return f"{file} is a directory"
        case "not-executable":
            return f"{file} has no execute permission"
        case "closed":
            return f"{file} cannot be reached: this account may not enter {about}"
        case "noexec":
            return f"{file} is on {about}, which is mounted noexec: no program may be run there"
        case "text":
            return f"{file}: {_NO_FIRST_LINE}"
        case "bom":
            return f"{file}: a byte order mark is before the #! of its first line: save it without"
        case "carriage-return":
            return f"{file}: its interpreter {about}^M does not exist: {_WINDOWS}"
        case "no-interpreter":
            return f"{file}: its first line names no interpreter"
        case "env-words":
            called = f"a program called {about!r}"
            return f"{file}: its first line has env look for {called}: write env -S"
        case "empty":
            return f"{file} is empty"
        case "machine":
            return f"{file} is for another processor ({about})"
        case "system":
            return f"{file} is a program for {about}"
        case "loader":
            return f"{file}: its loader {about} does not exist: it is for another C library"
        case "long-word":
            what = f"the value of {file}" if file else "an argument"
            return f"{what} has {_bytes(about)}, and the kernel takes {size(MOST_OF_WORD)} for one"
        case "long-words":
            return f"arguments and variables have {_bytes(about)}, more than the kernel takes"
        case "no-directory":
            return f"{file}: no such directory"
        case "not-a-directory":
            return f"{file} is not a directory"
        case "closed-directory":
            at = f" ({about})" if about != file else ""
            return f"{file} cannot be entered: permission denied{at}"
        case _:
            return file


def _path(text: str) -> str:
    """The directories of a `PATH`, each once, as many as fit into a sentence."""
    places = list(dict.fromkeys(filter(None, text.split(":"))))
    count = len(places)
    while count > 1 and sum(map(len, places[:count])) + count > _LONGEST_PATH:
        count -= 1
    more = f" and {len(places) - count} more" if count < len(places) else ""
    return (":".join(places[:count]) or "it is empty") + more


def _bytes(text: str) -> str:
    return size(int(text)) if text.isdecimal() else text
