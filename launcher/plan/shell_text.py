"""Shell text in words that no shell reads: what it is in `command` and `env`, and what to write.

A command that was copied from a terminal or a script has words that a shell would have read: `>`,
`2>&1`, `|`, `&&`, `$VAR`, `*.csv`, `VAR=x` in front of the program. Here they reach the program as
they are. What may be meant for the program itself is left alone: regular expressions, patterns
behind an option, values of other languages (`${now:%Y}` of Hydra), scripts of interpreters.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from ..cluster.file_model import ClusterModel
from ..cluster.placeholders import PLAIN, RANKED, names_in
from ..cluster.ranks import has_ranks
from ..frozen import frozen
from ..quantities import and_list
from .tilde import TILDE_INSIDE, with_home_inside, words_and_scripts


@frozen
class ShellText:
    """What in a command or a variable only a shell would read, and what to write instead."""

    what: str
    todo: str


class _Kind(Enum):
    PLAIN = auto()
    SCRIPT = auto()
    """For a shell or another interpreter, which reads it."""
    CONTROL = auto()
    REDIRECT = auto()
    VARIABLE = auto()
    PATTERN = auto()
    TILDE = auto()
    ASSIGNMENT = auto()
    """`VAR=x` in front of a program."""
    BUILTIN = auto()
    """A command of shells that is no program, where a program should be."""


_CONTROL = ("&&", "||", "|", "|&", "&", ";")
_REDIRECT = re.compile(r"(?:\d|&)?>>?[|]?(?:&[0-9-])?|<{1,3}|>&")
_TO_FILE = re.compile(
    r"(?P<sign>(?:\d|&)?>>?)(?P<file>(?:[A-Za-z/~$_{]|\.{1,2}/|\.[A-Za-z])[^<>=|]*)"
)
_FROM_FILE = re.compile(r"(?P<sign><)(?P<file>[A-Za-z./~$_][^<>=|]*[./][^<>=|]*)")
_VARIABLE = re.compile(
    r"(?<![\\$])\$(?:(?P<upper>[A-Z_][A-Z0-9_]*)\b|@|\([^()]*\)"
    r"|\{(?P<braced>[A-Za-z_]\w*)(?:[:%#/^,+=?-][^{}]*)?\})"
    r"|(?<![\\$\w\"'])\$(?P<lower>[A-Za-z_]\w*)(?!\$(?:\W|$))(?!\w)"
    r"|(?<![^=])`[^`]+`$"
)
"""Variables and commands of shells."""
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/-]*=.*", re.DOTALL)
"""An argument of Hydra, in which `${name}` is its own, and so is `${name:text}` anywhere."""
_PATTERN = re.compile(r"[\w./~+@%,{}$-]*[*?][\w./~+@%,{}$*?-]*")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_OPTION_OF_SIGN = re.compile(r"--?[\w-]*(?:sep|delim|op|sign|char|token|symbol|field)\w*")
_SHORT_OPTION_OF_SIGN = re.compile(r"-[dFtsSk]")
"""Options whose value may be a sign that means something to shells."""

_BUILTINS = (
    *("cd", "pushd", "export", "source", ".", "exec", "ulimit", "umask", "set", "unset", "eval"),
    *("alias", "trap", "module", "if", "for", "while", "{", "("),
)
_BASH = re.compile(r"(?:^|[\s;&|])source\s|pipefail|&>|[|]&|<<<|\[\[")
_BEFORE_OTHERS = (*_BUILTINS, "mkdir", "rm", "cp", "mv", "echo", "sleep", "conda", "pip")
"""Commands that stand in front of a program, often with `;`."""
_TESTS = ("test", "[", "expr", "let")
_OWN_TEXT = (
    *("awk", "gawk", "mawk", "sed", "jq", "yq", "grep", "egrep", "rg", "find", "fd", "perl", "git"),
    *("rsync", "pytest", "tr", "envsubst", "xargs", "parallel"),
)
"""Programs whose arguments are expressions and patterns."""
_ELSEWHERE = ("ssh", "parallel", "watch", "clush", "pdsh")
"""Programs that give their words to a shell."""
_FILE_TOOLS = (
    *("ls", "cat", "cp", "mv", "rm", "ln", "wc", "head", "tail", "sort", "tar", "gzip", "gunzip"),
    *("zcat", "du", "chmod", "touch", "sha256sum", "md5sum", "unzip"),
)
"""Programs whose options take no pattern as their value."""
_INTERPRETER = re.compile(r"(?:\{python\}|.*python[\d.]*|perl|ruby|node|Rscript|julia|lua)")
_CODE = ("-c", "-e", "-E")

_RANKS = {
    "RANK": "{rank}",
    "WORLD_SIZE": "{world_size}",
    "LOCAL_RANK": "{local_rank}",
    "LOCAL_WORLD_SIZE": "{local_world_size}",
    "NODE_RANK": "{node_rank}",
    "GROUP_RANK": "{node_rank}",
    "MASTER_ADDR": "{master_addr}",
    "MASTER_PORT": "{master_port}",
    "SLURM_PROCID": "{rank}",
    "SLURM_NTASKS": "{world_size}",
    "SLURM_LOCALID": "{local_rank}",
    "SLURM_NODEID": "{node_rank}",
    "OMPI_COMM_WORLD_RANK": "{rank}",
    "OMPI_COMM_WORLD_SIZE": "{world_size}",
    "OMPI_COMM_WORLD_LOCAL_RANK": "{local_rank}",
}
_PLACES = {"HOME": "{home}", "PWD": "{workdir}"}
_EVERYWHERE = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "PWD", "HOSTNAME", "TMPDIR")
"""Variables that a host has itself."""
_OURS = ("CUDA_VISIBLE_DEVICES", "TF_CONFIG", "PYTHONPATH", *_RANKS)
"""Variables that tasks may have from the launch."""
_LONGEST = 60


def shell_texts(cluster: ClusterModel, job: str = "", host: str = "") -> Iterator[ShellText]:
    """Finds shell text in commands and variables: of a job on a host, or of all. The cluster file
    is read, not what has been put in."""
    jobs = [job] if job else list(cluster.jobs)
    for name in jobs:
        if found := _of_command(cluster, name):
            yield found
    hosts = [host] if host in cluster.hosts else []
    named = [(("hosts", name), cluster.hosts[name].env) for name in (hosts or cluster.hosts)]
    tables = [(("run",), cluster.run.env), *(named if hosts or not host else [])]
    tables += [(("jobs", name), cluster.jobs[name].env) for name in jobs]
    for table, env in tables:
        for variable, value in env.items():
            if found := _of_variable(cluster, table, variable, value, jobs[0], host):
                yield found


def hook_texts(cluster: ClusterModel) -> Iterator[tuple[str, ShellText]]:
    """Finds shell text in the commands of hooks, with the hook's key."""
    for key, command in cluster.hooks:
        if command is not None and (found := _of_hook(key, command)):
            yield key, found


def front_problem(command: Sequence[str]) -> str:
    """What at the front of a command only a shell would take for something else than the name of a
    program, and what to write; empty if nothing. For a command line, which a shell has read."""
    words = _words(command)
    front = [word.text for word in words if word.kind is _Kind.ASSIGNMENT]
    if words and words[0].kind is _Kind.ASSIGNMENT:
        named = " ".join(f"-x {shlex.quote(text)}" for text in front)
        return f"{front[0]} is not a program: write {named} before the command"
    if (parted := _parted(command)) and not os.path.exists(command[0]):
        return f"{_shown(command[0])} is one word: write {shlex.join(parted)}"
    return ""


# --- commands -------------------------------------------------------------------------------


@frozen
class _Word:
    text: str
    kind: _Kind

    @property
    def in_script(self) -> str:
        """The word in a script of a shell, in which it means what people want."""
        text = self.text
        match self.kind:
            case _Kind.CONTROL | _Kind.BUILTIN:
                return text
            case _Kind.REDIRECT:
                match = _TO_FILE.fullmatch(text) or _FROM_FILE.fullmatch(text)
                if match is None or match["file"].startswith("&"):
                    return text
                return match["sign"] + _Word(match["file"], _kind_of_text(match["file"])).in_script
            case _Kind.VARIABLE | _Kind.PATTERN:
                return _rendered(text, pattern=_is_pattern(text))
            case _Kind.ASSIGNMENT:
                name, _, value = text.partition("=")
                return f"{name}={_Word(value, _kind_of_text(value)).in_script}" if value else text
            case _Kind.TILDE:
                return _quoted(with_home_inside(text))
        if text == "~" or text.startswith("~/"):
            return f"~/{_quoted(text[2:])}" if text[2:] else text
        return _quoted(text)


_SAFE = re.compile(
    r"(?:[\w@%+=:,./-]|\{(?:port|index|rank|world_size|local_rank|node_rank|job|num)[\w.]*\})+"
)
"""A word that a shell takes as it is, whatever its placeholders are."""


def _quoted(text: str) -> str:
    return text if _SAFE.fullmatch(text) else shlex.quote(text)


def _rendered(text: str, *, pattern: bool) -> str:
    """A word with variables, which a shell shall replace but not part, and with `pattern` the signs
    of one."""
    if text.startswith("~/"):
        text = f"$HOME{text[1:]}"
    parts = re.split(r"([*?]+)", text) if pattern else [text]
    return "".join(part if part[:1] in ("*", "?") else _with_variables(part) for part in parts)


def _with_variables(text: str) -> str:
    if not text or not _VARIABLE.search(text):
        return text and _quoted(text)
    if re.fullmatch(r"\$\w+|\$\{\w+\}", text):
        return text  # it may stand for several words, as $ARGS does
    text = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{text}"'


def _is_pattern(text: str) -> bool:
    return bool(_PATTERN.fullmatch(text) and re.search(r"[./]", text))


def _has_variable(text: str) -> bool:
    return any(_is_for_shells(match) for match in _VARIABLE.finditer(text))


def _is_for_shells(match: re.Match[str]) -> bool:
    """Whether `${name}` in small letters is no value of Hydra and no part of a longer text."""
    name = match["braced"]
    if name is None or name.isupper():
        return True
    text = match.string
    return match[0] == f"${{{name}}}" and not (
        _OVERRIDE.fullmatch(text) or re.search(r"[\s\"']", text)
    )


def _kind_of_text(text: str) -> _Kind:
    if _has_variable(text):
        return _Kind.VARIABLE
    return _Kind.TILDE if TILDE_INSIDE.search(text) else _Kind.PLAIN


def _words(command: Sequence[str]) -> list[_Word]:
    """The words of a command, each with what it is."""
    found: list[_Word] = []
    program, interpreter, before = "", False, ""
    starts = True
    for text, script in _joined(_with_semicolons(command)):
        code = interpreter and before in _CODE
        kind = _Kind.SCRIPT if script or code else _kind(text, before, program, starts=starts)
        if kind is _Kind.CONTROL:
            starts, program, interpreter = True, "", False
        elif starts and kind is not _Kind.ASSIGNMENT:
            starts, program = False, posixpath.basename(text)
        interpreter |= bool(_INTERPRETER.fullmatch(posixpath.basename(text)))
        before = text
        found.append(_Word(text, kind))
    return found


def _with_semicolons(command: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The words, each with whether it is a script; a `;` at the end of one is a word of its own."""
    program = ""
    for text, script in words_and_scripts(command):
        program = program or text
        if not script and program in _BEFORE_OTHERS and re.fullmatch(r"[^\s;\\]+;", text):
            yield text[:-1], False
            yield ";", False
            program = ""
        else:
            program = "" if text in _CONTROL else program
            yield text, script


def _joined(words: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """The words; `$(` and all words up to its `)` are one."""
    open_words: list[str] = []
    for text, script in words:
        if open_words or (not script and "$(" in text and text.count("(") > text.count(")")):
            open_words.append(text)
            joined = " ".join(open_words)
            if joined.count("(") <= joined.count(")"):
                yield joined, False
                open_words = []
        else:
            yield text, script
    yield from ((text, False) for text in open_words)


def _kind(text: str, before: str, program: str, *, starts: bool) -> _Kind:
    """What a word is, behind another one, as an argument of a program or (`starts`) as one."""
    if program in _ELSEWHERE:
        return _Kind.PLAIN
    if starts and _ASSIGNMENT.fullmatch(text):
        return _Kind.ASSIGNMENT
    if starts and text in _BUILTINS:
        return _Kind.BUILTIN
    if not starts and program not in _TESTS and not _OPTION_OF_SIGN.fullmatch(before):
        short = _SHORT_OPTION_OF_SIGN.fullmatch(before)
        if text in _CONTROL and not short and not (text == ";" and program == "find"):
            return _Kind.CONTROL
        if any(form.fullmatch(text) for form in (_REDIRECT, _TO_FILE, _FROM_FILE)):
            return _Kind.REDIRECT
    if program in _OWN_TEXT:
        return _Kind.PLAIN
    if _has_variable(text):
        return _Kind.VARIABLE
    if TILDE_INSIDE.search(text):
        return _Kind.TILDE
    option = before.startswith("-") and program not in _FILE_TOOLS
    return _Kind.PATTERN if not starts and not option and _is_pattern(text) else _Kind.PLAIN


def _of_command(cluster: ClusterModel, job: str) -> ShellText | None:
    own = cluster.jobs[job].command
    command = own or cluster.run.command or ()
    table = f"jobs.{job}" if own else "run"
    if split := _parted(command):
        whole = next(word for word in command if re.search(r"\s", word))
        what = f"{_shown(whole)} is one word, and no shell takes it apart"
        return ShellText(what, f"write {_command(split)} in [{table}]")
    words = _words(command)
    kinds = {word.kind for word in words} - {_Kind.PLAIN, _Kind.SCRIPT}
    if not kinds:
        return None
    if kinds == {_Kind.TILDE}:
        word = next(word.text for word in words if word.kind is _Kind.TILDE)
        what = f"{_shown(word)} has a ~ that no shell reads, so a folder called ~ would be meant"
        return ShellText(what, f"write {with_home_inside(word)}")
    marked = [word for word in words if word.kind not in (_Kind.PLAIN, _Kind.SCRIPT)]
    verb = "is" if len({word.text for word in marked}) == 1 else "are"
    what = f"{_listed(marked)} {verb} for a shell, and no shell reads command in [{table}]"
    return ShellText(what, _repair(cluster, job, words, table))


def _of_hook(key: str, command: Sequence[str]) -> ShellText | None:
    """Shell text in the command of a hook, which gets no placeholders."""
    if split := _parted(command):
        whole = next(word for word in command if re.search(r"\s", word))
        what = f"{_shown(whole)} is one word, and no shell takes it apart"
        return ShellText(what, f"write {key} = {_toml(split)} in [hooks]")
    first, *rest = _words(command)
    words = [first, *map(_with_home_variable, rest)]
    marked = [word for word in words if word.kind not in (_Kind.PLAIN, _Kind.SCRIPT)]
    if not marked:
        return None
    verb = "is" if len({word.text for word in marked}) == 1 else "are"
    what = f"{_listed(marked)} {verb} for a shell, and no shell reads {key} in [hooks]"
    script = _script(words)
    shell = "bash" if _BASH.search(script) else "sh"
    return ShellText(what, f"write {key} = {_toml([shell, '-c', script])} in [hooks]")


def _with_home_variable(word: _Word) -> _Word:
    """A word in which a shell puts the home in: in the program of a hook alone tfmux does."""
    text = word.text
    if word.kind is _Kind.PLAIN and (text == "~" or text.startswith("~/")):
        return _Word(f"$HOME{text[1:]}", _Kind.VARIABLE)
    if word.kind is _Kind.TILDE:
        return _Word(re.sub(r"~/", "$HOME/", text, count=1), _Kind.VARIABLE)
    return word


def _repair(cluster: ClusterModel, job: str, words: list[_Word], table: str) -> str:
    """What to write instead of a command with shell text in it."""
    front = next((n for n, word in enumerate(words) if word.kind is not _Kind.ASSIGNMENT), 0)
    places = _PLACES | (_RANKS if has_ranks(cluster, job) else {})
    given = {match["name"] for word in words if (match := _ASSIGNMENT.match(word.text))}
    places = {name: place for name, place in places.items() if name not in given}
    rest = [_without_variables(word, places) for word in words[front:]]
    before = ""
    if front and all(word.kind is _Kind.ASSIGNMENT for word in words[:front]):
        if all(not _VARIABLE.search(word.text) for word in words[:front]):
            pairs = [word.text.split("=", 1) for word in words[:front]]
            values = ", ".join(f"{name} = {_toml(value)}" for name, value in pairs)
            before = f"env = {{ {values} }} and "
        else:
            rest = [_Word("env", _Kind.PLAIN), *words[:front], *rest]
    while rest and rest[-1].text == "&" and rest[-1].kind is _Kind.CONTROL:
        rest.pop()
    while rest and rest[0].text in ("nohup", "exec"):
        rest.pop(0)
    known = (_Kind.PLAIN, _Kind.SCRIPT)
    if all(word.kind in known for word in rest):
        return f"write {before}{_command([word.text for word in rest])} in [{table}]"
    names = _needed_from_here(cluster, job, rest)
    if names:
        before += f"env_from = {_toml(names)} and "
    script = _script(rest)
    if any(word.kind is _Kind.CONTROL and word.text in ("|", "|&") for word in rest):
        script = f"set -o pipefail; {script}"  # else only the last program's status counts
    shell = "bash" if _BASH.search(script) else "sh"
    return f"write {before}{_command([shell, '-c', script])} in [{table}]"


def _without_variables(word: _Word, places: Mapping[str, str]) -> _Word:
    """A word with placeholders instead of variables, where they stand for all of them."""
    if word.kind is not _Kind.VARIABLE:
        return word
    text = _with_placeholders(word.text, places)
    return _Word(text, _kind_of_text(text))


def _with_placeholders(text: str, places: Mapping[str, str]) -> str:
    def placeholder(match: re.Match[str]) -> str:
        name = match["upper"] or match["braced"] or ""
        if match[0] == f"${{{name}}}" and name in (*PLAIN, *RANKED):
            return f"{{{name}}}"
        plain = match[0] in (f"${name}", f"${{{name}}}")
        return places.get(name, match[0]) if plain else match[0]

    return _VARIABLE.sub(placeholder, text)


def _needed_from_here(cluster: ClusterModel, job: str, words: Sequence[_Word]) -> list[str]:
    """Variables in words that are set in this shell, and that tasks would not have."""
    entry = cluster.jobs[job]
    given = {*cluster.run.env, *entry.env, *cluster.run.env_from, *entry.env_from}
    for place in entry.tasks:
        given |= set(cluster.hosts[place.host].env) if place.host in cluster.hosts else set()
    names = [match for word in words if word.kind is _Kind.VARIABLE for match in _names(word.text)]
    local = all(cluster.is_local(place.host) for place in entry.tasks)
    return [
        name
        for name in dict.fromkeys(names)
        if name in os.environ and name not in {*given, *_EVERYWHERE, *_OURS} and not local
    ]


def _names(text: str) -> list[str]:
    found = (
        match["upper"] or match["braced"] or match["lower"] for match in _VARIABLE.finditer(text)
    )
    return [name for name in found if name]


def _script(words: Sequence[_Word]) -> str:
    """A script that does what the words say; its last program becomes the task's process."""
    lines: list[list[str]] = [[]]
    signs: list[str] = []
    for word in words:
        if word.kind is _Kind.CONTROL:
            signs.append(word.text)
            lines.append([])
        elif word.text == "exec" and word.kind is _Kind.BUILTIN:
            continue
        else:
            lines[-1].append(word.in_script)
    last = lines[-1]
    piped = signs and signs[-1] in ("|", "|&", "&", "||")
    if last and not piped and last[0] not in _BUILTINS:
        lines[-1] = ["exec", *(["env"] if _ASSIGNMENT.fullmatch(last[0]) else []), *last]
    text = " ".join(lines[0])
    for sign, line in zip(signs, lines[1:], strict=True):
        text += ("; " if sign == ";" else f" {sign} ") + " ".join(line)
    return text.strip()


_SCRIPT_WITH_OPTIONS = re.compile(r"\S+\.(?:py|sh)\s+\S.*", re.DOTALL)


def _parted(command: Sequence[str]) -> list[str]:
    """The words of a command with a whole command line, or a script with its options, in one word;
    empty if it has none."""
    at = next((n for n, word in enumerate(command) if not word.startswith("-")), 0)
    if command and _INTERPRETER.fullmatch(posixpath.basename(command[0])):
        at = next((n for n, word in enumerate(command) if n and not word.startswith("-")), 0)
        if at > 1 and command[at - 1] in (*_CODE, "-m"):
            return []
    line = command[at] if command else ""
    whole = len(command) == 1 and re.search(r"\s", line)
    if not whole and not _SCRIPT_WITH_OPTIONS.fullmatch(line):
        return []
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    if len(words) < 2 or ("/" in words[0] and not re.search(r"\s-|\.py\b|\.sh\b", line)):
        return []
    if whole and any(word.kind not in (_Kind.PLAIN, _Kind.TILDE) for word in _words(words)):
        return ["sh", "-c", line]
    words = [with_home_inside(word) if TILDE_INSIDE.search(word) else word for word in words]
    return [*command[:at], *words, *command[at + 1 :]]


# --- variables ------------------------------------------------------------------------------


def _of_variable(
    cluster: ClusterModel, table: tuple[str, ...], name: str, value: str, job: str, host: str
) -> ShellText | None:
    """Shell text in the value of a variable of a table; `job` and `host` are of a task that gets
    it."""
    if any(TILDE_INSIDE.search(part) for part in value.split()):
        what = f"{name} = {_shown(value)} has a ~ that no shell reads, so a folder called ~ would "
        return ShellText(f"{what}be meant", f"write {with_home_inside(value)}")
    if not _has_variable(value):
        return None
    what = f"{name} = {_shown(value)} is for a shell, and no shell reads env in "
    what += f"[{'.'.join(table)}]"
    shown = f"[{'.'.join(table)}]"
    removed = f"remove {name} from env in {shown}"
    if value in (f"${name}", f"${{{name}}}"):
        at = shown if table[0] != "hosts" else "[run]"
        return ShellText(what, f"write env_from = {_toml([name])} in {at} and {removed}")
    text = _with_placeholders(value, _PLACES)
    if not _has_variable(text):
        return ShellText(what, f"write {name} = {_toml(text)} in env in {shown}")
    text = text.replace("{home}", "$HOME").replace("{workdir}", "$PWD")
    text = re.sub(r"(^|:)~/", r"\1$HOME/", text).replace('"', '\\"')
    line = f'export {name}="{text}"'
    if any(True for _ in names_in(text)):  # placeholders, which do not hold in `setup`
        entry = cluster.jobs[job]
        own = entry.command or cluster.run.command or ()
        words = ["sh", "-c", f'{line}; exec "$@"', "sh", *own]
        where = f"jobs.{job}" if entry.command else "run"
        return ShellText(what, f"write {_command(words)} in [{where}] and {removed}")
    at, setup = _setup(cluster, table, job, host)
    lines = f"{setup.rstrip()}\n{line}" if setup.strip() else line
    return ShellText(what, f"write setup = {_toml(lines)} in [{at}] and {removed}")


def _setup(cluster: ClusterModel, table: tuple[str, ...], job: str, host: str) -> tuple[str, str]:
    """Table and text of the `setup` that holds for a job's tasks on a host."""
    for at, text in (
        (f"jobs.{job}", cluster.jobs[job].setup),
        (f"hosts.{host}", cluster.hosts[host].setup if host in cluster.hosts else None),
    ):
        if text is not None:
            return at, text
    return ("run", cluster.run.setup) if cluster.run.setup else (".".join(table), "")


def _command(words: Sequence[str]) -> str:
    return f"command = {_toml(list(words))}"


def _toml(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _listed(words: Sequence[_Word]) -> str:
    texts = list(dict.fromkeys(_shown(word.text) for word in words))
    shown = texts[:4]
    if len(texts) > 4:
        return ", ".join([*shown, "…"])
    return and_list(shown)
