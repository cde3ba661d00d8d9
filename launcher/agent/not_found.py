"""Program that a shell, or a program in front of another one, has not found or could not start.

Shells end with 127 where there is no such program and with 126 where it cannot be started; `env`,
`nice`, `timeout` and the like do the same. Which program that was stands in the words of the task's
command, or in the shell text among them: each candidate is looked for in the `PATH`, and only one
that is not there is named. What a shell has printed is not read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Iterator, Sequence

from .executables import (
    HEAD_BYTES,
    SHELLS,
    ProgramProblem,
    find_program,
    first_line,
    program_problem,
)

NOT_STARTED = (126, 127)
"""Statuses that mean that a program was not started."""
_MOST_BYTES = 64 * 1024
_MOST_COMMANDS = 200
_DEEPEST = 5
"""Programs in front of another one, and shells in shells."""
_IN_FRONT = {
    "chrt": 1,
    "env": 0,
    "exec": 0,
    "ionice": 0,
    "nice": 0,
    "nohup": 0,
    "numactl": 0,
    "setsid": 0,
    "stdbuf": 0,
    "taskset": 1,
    "time": 0,
    "timeout": 1,
}
"""Programs that start the one behind their options, and how many words stand before that."""
_WITH_VALUE = {
    "chrt": "TPD",
    "env": "uCS",
    "ionice": "cnp",
    "nice": "n",
    "stdbuf": "ioe",
    "time": "fo",
    "timeout": "ks",
}
"""Their options that have a value in the next word."""
_BUILTINS = frozenset(
    "! : [ [[ { } alias bg bind break builtin caller case cd command compgen complete continue "
    "declare dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi "
    "for function getopts hash help history if in jobs kill let local logout mapfile popd printf "
    "pushd pwd read readarray readonly return select set setopt shift shopt source suspend test "
    "then time times trap true type typeset ulimit umask unalias unset until wait while . ]] ]"
    "".split()
)
_GO_ON = frozenset("! { command do elif else exec if then time until while builtin".split())
"""Words behind which the next one is a command again."""
_CHANGES = frozenset(
    ". source eval alias module ml conda mamba micromamba pyenv spack hash enable function case"
    "".split()
)
"""Words behind which a name may mean anything."""
_SIGNS = ";&|()<>\n"


def missing_program(argv: Sequence[str], path: str, cwd: str) -> ProgramProblem | None:
    """The program that a command with status 126 or 127 has not been able to start; None where that
    is not certain."""
    found = list(dict.fromkeys(_missing(list(argv), path, cwd, _DEEPEST)))
    return found[0] if len(found) == 1 else None


def _missing(words: list[str], path: str, cwd: str, deepest: int) -> Iterator[ProgramProblem]:
    if not words or not deepest:
        return
    problem = program_problem(words[0], path, cwd, by_shell=True)
    if problem:
        yield problem
        return
    name = os.path.basename(words[0])
    if name in _IN_FRONT:
        yield from _missing(_behind(name, words[1:]), path, cwd, deepest - 1)
        return
    if name in SHELLS:
        yield from _missing_in_shell(words[1:], path, cwd, deepest)
        return
    file = find_program(words[0], path, cwd)
    interpreter = first_line(_head(file)[:HEAD_BYTES].encode(errors="surrogateescape"), file)[1]
    if os.path.basename(interpreter) in SHELLS:
        yield from _missing_in(_head(file), path, cwd, deepest - 1)


def _missing_in_shell(
    words: list[str], path: str, cwd: str, deepest: int
) -> Iterator[ProgramProblem]:
    while words and words[0][:1] in "-+" and len(words[0]) > 1:
        option = words.pop(0)
        letters = "" if option.startswith("--") else option
        if "l" in letters or "i" in letters or option in ("--login", "--rcfile", "--init-file"):
            return  # its files may set another PATH
        if "c" in letters:
            text = words[0] if words else ""
            yield from _missing_in(text, path, cwd, deepest - 1)
            return
        if option[-1:] in ("o", "O") and words:
            words.pop(0)
    if not words:
        return
    script = os.path.join(cwd, words[0])
    if not os.path.exists(script):
        yield ProgramProblem("missing", script)
    else:
        yield from _missing_in(_head(script), path, cwd, deepest - 1)


def _missing_in(text: str, path: str, cwd: str, deepest: int) -> Iterator[ProgramProblem]:
    """The programs of a shell's text that are not there, up to where that is not known."""
    moved = False
    for number, words in enumerate(_commands(text)):
        while words and (words[0] in _GO_ON or _is_assignment(words[0])):
            if words[0].startswith("PATH="):
                return
            words = words[1:]
        if not words or number >= _MOST_COMMANDS:
            return
        name = words[0]
        if name in _CHANGES or any(word.startswith("PATH=") for word in words[1:]):
            return
        moved = moved or name in ("cd", "pushd", "popd")
        unknown = any(sign in name for sign in "$`*?~[{\\") or name.isdigit()
        if name in _BUILTINS or unknown or (moved and not name.startswith("/") and "/" in name):
            continue
        if moved and name in SHELLS:
            continue
        yield from _missing(words, path, cwd, deepest)


def _commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell's text, without their redirections; none where the text has
    more than that in it."""
    if len(text) > _MOST_BYTES or "<<" in text or "\0" in text:
        return
    import shlex  # few tasks end like this

    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=_SIGNS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that is not closed
        return
    if any(token.startswith("()") for token in tokens):
        return  # functions
    words: list[str] = []
    skips = comment = False
    for token in tokens:
        signs = bool(token) and not token.strip(_SIGNS)
        if comment and not (signs and "\n" in token):
            continue
        comment = False
        if signs and ("<" in token or ">" in token):
            skips = True
        elif signs:
            if words:
                yield words
            words, skips = [], False
        elif skips:
            skips = False
        elif token.startswith("#"):
            comment = True
        elif words[:1] != ["for"]:
            words.append(token)
    if words:
        yield words


def _behind(name: str, words: list[str]) -> list[str]:
    """The words behind a program that starts another one, and its options."""
    before = _IN_FRONT[name]
    while words:
        word = words[0]
        if word == "--":
            words = words[1:]
            break
        if word.startswith("-") and len(word) > 1:
            value = word[1:2] in _WITH_VALUE.get(name, "") and len(word) == 2
            words = words[2 if value else 1 :]
        elif name == "env" and "=" in word:
            if word.startswith("PATH="):
                return []
            words = words[1:]
        elif before:
            before -= 1
            words = words[1:]
        else:
            break
    return words


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign) and name.isidentifier()


def _head(file: str) -> str:
    with suppress(OSError), open(file, "rb") as opened:
        return opened.read(_MOST_BYTES + 1).decode(errors="surrogateescape")
    return ""
