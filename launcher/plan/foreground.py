"""Commands that would not stay in the foreground: what their words say of it before a launch.

A program may go into the background without a word of this (`run.background` sees it when it
happens); these are the forms that people write.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash")
_PREFIXES = ("env", "nice", "ionice", "stdbuf", "time", "exec", "command", "numactl", "taskset")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATORS = "();<>|&\n"
_NO_BACKGROUND = re.compile(r"&&|[<>]&|&>>?|\|&")
"""Operators with an `&` in them that start nothing in the background."""
_IDLE = (
    *("echo", "printf", "exit", "true", ":", "disown", "sleep", "date", "return", "hostname"),
    *("done", "fi", "esac", "}"),
)
"""Words with which launch scripts end, behind the command that works."""
ADVICE = "start it in the foreground, without & and nohup"
_AT_ONCE = "the task ends at once, and the processes that it has started are ended with it"
_UNSEEN = "another service of the host starts it, where tfmux neither sees nor ends it"
_MOST = 20_000
"""Characters of a script that are looked at."""


def background_problem(argv: Sequence[str]) -> str:
    """What in a command puts it in the background, and what becomes of it; empty if nothing."""
    words = without_prefixes(argv)
    if not words:
        return ""
    program, rest = posixpath.basename(words[0]), words[1:]
    if program in _SHELLS:
        script = _script(rest)
        return "" if script is None else _script_problem(script)
    if program == "setsid" and not _has(rest, "w", "--wait"):  # a task leads its session: it forks
        return f"setsid starts its program in the background: {_AT_ONCE}; remove it"
    return _program_problem(program, rest)


def _program_problem(program: str, rest: Sequence[str]) -> str:
    first = rest[0] if rest else ""
    match program:
        case "setsid" if _has(rest, "f", "--fork"):
            return f"setsid --fork starts its program in the background: {_AT_ONCE}; remove it"
        case "tmux" if "-d" in rest and any(word in ("new", "new-session") for word in rest):
            return f"tmux new -d starts its program in the background: {_AT_ONCE}; remove it"
        case "screen" if _has(rest, "d", "") and _has(rest, "m", ""):
            return f"screen -dm starts its program in the background: {_AT_ONCE}; remove it"
        case "ray" if first == "start" and "--block" not in rest:
            return f"ray start puts Ray in the background: {_AT_ONCE}; add --block"
        case "start-stop-daemon" if _has(rest, "b", "--background"):
            return f"start-stop-daemon --background: {_AT_ONCE}; remove it"
        case "daemonize" | "daemon":
            return f"{program} starts its program in the background: {_AT_ONCE}; remove it"
        case "docker" | "podman" if first == "run" and _has(rest[1:], "d", "--detach"):
            return f"{program} run -d leaves the container in the background; remove -d"
        case "systemd-run" if not any(
            _has(rest, letter, option)
            for letter, option in (("", "--wait"), ("", "--scope"), ("t", "--pty"), ("P", "--pipe"))
        ):
            return f"systemd-run: {_UNSEEN}; add --scope, or remove it"
        case "at" | "batch":
            return f"{program}: {_UNSEEN}; remove it"
    return ""


def _has(words: Sequence[str], letter: str, option: str) -> bool:
    """There is this option among the first words, as a letter (alone or with others) or in full."""
    for word in words:
        if not word.startswith("-") or word == "--":
            return False
        if word == option or (letter and word[1:2] != "-" and letter in word[1:]):
            return True
    return False


def without_prefixes(argv: Sequence[str]) -> Sequence[str]:
    """The words of a command from its program on, without `env A=1`, `nice`, and their like."""
    words = list(argv)
    prefixed = False
    while words:
        word = words[0]
        prefix = posixpath.basename(word) in _PREFIXES
        if not prefix and not _ASSIGNMENT.match(word):
            if not (prefixed and word.startswith("-")):
                break
        prefixed |= prefix
        words.pop(0)
    return words


def _script(words: Sequence[str]) -> str | None:
    """The script of a shell's `-c`."""
    asked = False
    for word in words:
        if asked and not word.startswith(("-", "+")):
            return word
        if not word.startswith(("-", "+")):
            return None
        asked |= word[:2] != "--" and "c" in word[1:]
    return None


def _script_problem(script: str) -> str:
    commands = _commands(script)
    if commands is None:
        return ""
    backgrounded = [number for number, (_, background) in enumerate(commands) if background]
    nohup = any(words and words[0] == "nohup" for words, _ in commands)
    if backgrounded:
        behind = [words for words, _ in commands[backgrounded[-1] + 1 :] if words]
        if all(words[0] in _IDLE for words in behind):
            which = "&, with nohup" if nohup else "&"
            return f"it ends in {which}: {_AT_ONCE}; {ADVICE}"
    elif nohup:
        return "nohup is not needed: no terminal ends a task; remove it"
    last = next((words for words, _ in reversed(commands) if words), [])
    words = without_prefixes(last)
    return _program_problem(posixpath.basename(words[0]), words[1:]) if words else ""


def _commands(script: str) -> list[tuple[list[str], bool]] | None:
    """The simple commands of a script, and whether each is started in the background; None where
    the script is none that we understand."""
    reader = shlex.shlex(script[:_MOST], posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace, reader.whitespace_split = " \t\r", True
    commands: list[tuple[list[str], bool]] = []
    words: list[str] = []
    redirected = False
    try:
        for token in reader:
            if not token or token.strip(_OPERATORS):
                if not redirected:
                    words.append(token)
                redirected = False
                continue
            operators = _NO_BACKGROUND.sub("", token)
            redirected = token.endswith(("<", ">", ">&", "<&")) and "\n" not in token
            if redirected and not operators.strip("<>"):
                continue
            commands.append((words, "&" in operators))
            words = []
    except ValueError:  # a quote is not closed
        return None
    return [*commands, (words, False)]
