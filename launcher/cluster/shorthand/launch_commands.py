"""Parser of command lines of `ssh`, `mpirun`, `torchrun` and other launchers, as far as they say
hosts; what follows the launcher's own words is the command to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import PurePath

from ...frozen import frozen
from ...printable import printable
from ..addresses import HERE, AddressError, SshDestination, parse_user
from ..choices import Framework
from ..placeholders import literal
from . import host_lists
from .entries import Entry, parse, split
from .understood import ListedHost, ShorthandError, Understood
from .variables import Variables, loops, with_value

_MOST_COMMANDS = 5000


@frozen
class _LaunchForm:
    """A launcher's options, without their hyphens and with `_` as `-`."""

    what: str
    hosts: frozenset[str] = frozenset()
    """Options whose value is a list of hosts."""
    files: frozenset[str] = frozenset()
    """Options that name a file of hosts."""
    valued: frozenset[str] = frozenset()
    """Other options with a value; an unknown one has none."""
    user: str = ""
    double: frozenset[str] = frozenset()
    """Options with two values."""
    framework: Framework = Framework.MPI_LIKE
    runs: bool = True
    """What follows is the command for the hosts."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MPI = _LaunchForm(
    "mpirun",
    hosts=_words("H host hosts"),
    files=_words("hostfile machinefile f default-hostfile rankfile rf configfile"),
    valued=_words(
        "n np c x env bind-to map-by rank-by npernode N ppn perhost prefix wdir wd path p ssh-port "
        "output-filename iface launcher bootstrap genv-list envlist start-timeout cycle-timeout "
        "host-discovery-script network-interfaces min-np max-np num-proc timeout display am tune "
        "personality stdin report-uri ssh-identity-file nics log-level"
    ),
    double=_words("mca pmixmca prtemca gmca genv env-pair"),
)
_SLURM = _LaunchForm(
    "srun",
    hosts=_words("w nodelist"),
    files=_words("F nodefile"),
    valued=_words(
        "N n c p t A J o e x nodes ntasks cpus-per-task partition time account job-name exclude"
    ),
)
_PDSH = _LaunchForm(
    "pdsh",
    hosts=_words("w"),
    files=_words("hostfile machinefile"),
    valued=_words("f t u x R l b"),
    user="l",
    framework=Framework.NONE,
)
_PSSH = _LaunchForm(
    "pssh",
    hosts=_words("H host"),
    files=_words("h hosts"),
    valued=_words("p o e t l O user"),
    user="l",
    framework=Framework.NONE,
)
_PARALLEL = _LaunchForm(
    "parallel",
    hosts=_words("S sshlogin"),
    files=_words("sshloginfile slf"),
    valued=_words("j jobs"),
    runs=False,
)
_LAUNCHERS = {
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "oshrun"), _MPI),
    "horovodrun": replace(_MPI, what="horovodrun"),
    **dict.fromkeys(("srun", "salloc", "sbatch"), _SLURM),
    **dict.fromkeys(("pdsh", "clush"), _PDSH),
    **dict.fromkeys(("pssh", "parallel-ssh"), _PSSH),
    "parallel": _PARALLEL,
}
_TORCH_VALUED = _words(
    "nnodes nproc-per-node node-rank master-addr master-port rdzv-endpoint rdzv-id rdzv-backend "
    "rdzv-conf max-restarts role log-dir redirects tee local-addr start-method monitor-interval "
    "num-processes num-machines machine-rank main-process-ip main-process-port config-file "
    "mixed-precision local-ranks-filter r t logs-specs"
)
_ALONE = {
    "ray": "ray starts one node: write its hosts, and ray's own command for them",
    "dask": "dask starts one node: write its hosts, and dask's own command for them",
    "dask-ssh": "dask-ssh starts dask: write the hosts alone",
}
_ANY = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(map(re.escape, (*_LAUNCHERS, *_ALONE)))}"
    r"|ssh|autossh|mosh|ssh-copy-id|torchrun|deepspeed|accelerate|torch\.distributed\.\w+)[ \t]"
)
_SSH_VALUED = frozenset("BbcDEeFIiJLlmOopQRSWw")
_BEFORE = _words("sudo nohup exec time env nice stdbuf setsid")


def find(text: str, known: Collection[str] = ()) -> Understood | None:
    """Parses the launchers' command lines of a text; None where it has none.

    Raises:
        ShorthandError: one names hosts elsewhere, or only some of them.
    """
    if not _ANY.search(text):
        return None
    variables = Variables.of(text)
    found: list[Understood] = []
    bodies: list[str] = []
    for name, values, body in loops(text, variables):
        bodies.append(body)
        for value in values:
            found += _found(body, with_value(variables, name, value), known)
            if len(found) > _MOST_COMMANDS:
                raise ShorthandError(f"it has more than {_MOST_COMMANDS:,} commands")
    plain = text
    for body in bodies:
        plain = plain.replace(body, "\n")
    found += _found(plain, variables, known)
    if not found:
        return None
    hosts = host_lists.merged([Entry(h.login, h.slots) for one in found for h in one.hosts])
    named = {h.login: h for one in found for h in one.hosts if h.identity or h.jump}
    jobs = next((one.jobs for one in found if one.jobs), {})
    if found[0].form.endswith("ssh"):  # each line is one host
        hosts = tuple(replace(named.get(host.login, host), slots=1) for host in hosts)
    first = found[0]
    return replace(
        first,
        hosts=() if jobs else hosts,
        jobs=jobs,
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
        left_out=tuple(dict.fromkeys(each for one in found for each in one.left_out)),
    )


def _found(text: str, variables: Variables, known: Collection[str]) -> list[Understood]:
    found = []
    for words in commands(text):
        understood = _command(words, variables, known)
        if understood is not None:
            found.append(understood)
    return found


def commands(text: str) -> list[list[str]]:
    """The words of each command in a text of a shell; a line's end, `;`, `&` and `|` end one."""
    found = []
    for line in text.splitlines()[:_MOST_COMMANDS]:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            words = list(lexer)
        except ValueError:
            words = line.split()
        current: list[str] = []
        for word in words:
            if word and set(word) <= set(";&|"):
                found.append(current)
                current = []
            else:
                current.append(word)
        found.append(current)
    return [own for words in found if (own := _own(words))]


def _own(words: list[str]) -> list[str]:
    """The command without what stands before a program's name."""
    while words and (
        re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.S)
        or words[0] in (*_BEFORE, "do", "then", "-E")
    ):
        words = words[1:]
    if words[:1] == ["sshpass"]:
        at = next((n for n, word in enumerate(words) if PurePath(word).name == "ssh"), len(words))
        words = words[at:]
    return words


def _command(
    words: Sequence[str], variables: Variables, known: Collection[str]
) -> Understood | None:
    if not words:
        return None
    program = PurePath(words[0]).name
    if re.fullmatch(r"python[\d.]*", program) and words[1:2] == ["-m"] and len(words) > 2:
        if words[2] in ("torch.distributed.launch", "torch.distributed.run"):
            return _torch(words[2], words[3:], variables)
        return None
    if program in ("torchrun", "deepspeed") or words[:2] == ["accelerate", "launch"]:
        rest = words[2:] if program == "accelerate" else words[1:]
        if program == "deepspeed":
            return _deepspeed(rest, variables)
        return _torch(program, rest, variables)
    if program in ("ssh", "autossh", "ssh-copy-id", "mosh"):
        return _ssh(program, words[1:], variables) if len(words) > 1 else None
    if program in _ALONE and len(words) > 1:
        raise ShorthandError(_ALONE[program])
    if program in _LAUNCHERS and len(words) > 1:
        return _launcher(program, _LAUNCHERS[program], words[1:], variables, known)
    return None


@frozen
class _Options:
    """Options of a command line, and the words behind them."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rest: Sequence[str] = ()

    def last(self, *names: str) -> str:
        found = [self.values[name][-1] for name in names if self.values.get(name)]
        return found[-1] if found else ""


def _options(words: Sequence[str], form: _LaunchForm) -> _Options:
    values: dict[str, list[str]] = {}
    at = 0
    valued = form.hosts | form.files | form.valued | ({form.user} - {""})
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        short = not word.startswith("--") and len(name) > 1 and name not in valued | form.double
        if name in form.double and not equals:
            at += 2
        elif name in valued:
            if not equals:
                value = words[at] if at < len(words) else ""
                at += 1
                if name in form.hosts and value.isdecimal():  # Microsoft MPI: -hosts 2 tf1 4 tf2 4
                    count = 2 * int(value[:4])
                    value, at = " ".join(words[at : at + count]), at + count
            values.setdefault(name, []).append(value)
        elif short and name[0] in valued and not equals:  # -wtf1, -N2
            values.setdefault(name[0], []).append(name[1:])
        else:
            values.setdefault(name, []).append(value)
    return _Options(values, words[at:])


def _launcher(
    program: str,
    form: _LaunchForm,
    words: Sequence[str],
    variables: Variables,
    known: Collection[str],
) -> Understood | None:
    options = _options(words, form)
    listed = [value for name in form.hosts for value in options.values.get(name, ())]
    file = options.last(*form.files)
    if not listed and file:
        raise _in_file(program, file)
    if not listed and (script := options.last("host-discovery-script")):
        shown = printable(script, 60)
        raise ShorthandError(f"{program} asks {shown} for its hosts: paste what that prints")
    count = options.last("n", "np", "num-proc")
    if not listed:
        if form.what in ("mpirun", "horovodrun") and count.isdecimal() and int(count) > 0:
            here = ListedHost(HERE, int(count))
            return Understood(
                program, hosts=(here,), command=_program(options.rest), framework=form.framework,
                left_out=_left(options, form),
            )  # fmt: skip
        if form.what == "srun":
            return None
        raise ShorthandError(f"{program} names no host here")
    text = variables.fill(" ".join(value.strip("\"'") for value in listed))
    text = re.sub(r"(^|[\s,])(\d+)/", r"\1", text) if program == "parallel" else text
    understood = host_lists.option(text, program, known)
    user = options.last(form.user) if form.user else ""
    if user:
        login = parse_user(user)
        hosts = [
            replace(h, login=replace(h.login, user=h.login.user or login)) for h in understood.hosts
        ]
        understood = replace(understood, hosts=tuple(hosts))
    command = _program(options.rest) if form.runs else ()
    return replace(
        understood, command=command, framework=form.framework, left_out=_left(options, form)
    )


def _in_file(program: str, file: str) -> ShorthandError:
    """The refusal of a command line whose hosts are in a file."""
    shown = printable(file, 60)
    return ShorthandError(
        f"{program} reads the hosts from {shown}: paste the lines of that file, or write "
        f"--hostfile {shown}"
    )


def _left(options: _Options, form: _LaunchForm) -> tuple[str, ...]:
    taken = form.hosts | {form.user, "n", "np", "num-proc"}
    hyphen = [
        f"{'-' if len(name) == 1 else '--'}{name}" for name in options.values if name not in taken
    ]
    return (f"{', '.join(hyphen[:6])} left out",) if hyphen else ()


def _program(words: Sequence[str]) -> tuple[str, ...]:
    """The command to run, without redirections."""
    found: list[str] = []
    for word in words:
        if word and set(word) <= set("<>&"):
            break
        found.append(literal(word))
    return tuple(found)


def _ssh(program: str, words: Sequence[str], variables: Variables) -> Understood:
    destination, user, port, identity, jump, at = "", "", "", "", "", 0
    ignored: list[str] = []
    behind: list[str] = []
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("-") and len(word) > 1 and (not behind or not destination):
            letters = word[1:]
            place = next((n for n, letter in enumerate(letters) if letter in _SSH_VALUED), None)
            if place is None:
                continue
            name, value = letters[place], letters[place + 1 :]
            if not value:
                value = words[at] if at < len(words) else ""
                at += 1
            if name == "p":
                port = value
            elif name == "l":
                user = value
            elif name == "i":
                identity = value
            elif name == "J":
                jump = value
            else:
                ignored.append(f"-{name} {value}")
        elif not destination:
            destination = word
        else:
            behind.append(word)
    if not destination:
        raise ShorthandError(f"{program} names no host here")
    destination = variables.fill(destination)
    try:
        login = parse(destination).login
        if user and login.user is None:
            login = replace(login, user=parse_user(variables.fill(user)))
        if port:
            login = SshDestination.parse(
                str(replace(login, port=None)) + f":{variables.fill(port)}"
            )
    except AddressError as error:
        raise ShorthandError(f"{program} {printable(destination, 60)}: {error}") from None
    host = ListedHost(login, 1, identity=identity, jump=jump)
    notes = [f"its key is {identity}"] if identity else []
    left = [f"{each} is left out" for each in ignored]
    if behind:
        left.append("the command after the host is left out")
    return Understood("ssh", hosts=(host,), notes=tuple(notes), left_out=tuple(left))


def _torch(program: str, words: Sequence[str], variables: Variables) -> Understood:
    options = _options(words, _LaunchForm(program, valued=_TORCH_VALUED))
    nodes = variables.fill(options.last("nnodes", "num-machines") or "1")
    each = variables.fill(options.last("nproc-per-node", "num-processes") or "1")
    first = options.last("master-addr", "main-process-ip", "rdzv-endpoint")
    first = variables.fill(first).rpartition(":")[0] or variables.fill(first)
    slots = int(each) if each.isdecimal() and 0 < int(each) < 4096 else 0
    if nodes != "1":
        shown = printable(nodes, 20)
        here = printable(first, 60) or "the first one"
        raise ShorthandError(
            f"{program} names 1 of {shown} hosts, {here}: write all of them, such as "
            f"{here if first else 'tf1'}:{slots or 1},tf2:{slots or 1}"
        )
    command = _program(options.rest)
    if command and command[0].endswith(".py"):
        command = ("{python}", *command)
    if "m" in options.values or "module" in options.values:
        command = ("{python}", "-m", *command)
    host = ListedHost(HERE, slots or 1)
    notes = () if slots else (f"{printable(each, 20)} is not a number of tasks: using 1",)
    return Understood(
        program, hosts=(host,), command=command, framework=Framework.TORCH, notes=notes
    )


def _deepspeed(words: Sequence[str], variables: Variables) -> Understood:
    valued = _words(
        "hostfile H include i exclude e num-nodes num-gpus master-port master-addr launcher"
    )
    options = _options(words, _LaunchForm("deepspeed", valued=valued))
    command = ("{python}", *_program(options.rest))
    found = Understood("deepspeed", command=command, framework=Framework.TORCH)
    include = options.last("include", "i")
    if include:
        hosts = []
        for part in variables.fill(include).split("@"):
            host, _, gpus = part.partition(":")
            count = len(split(re.sub(r"(\d+)-(\d+)", r"x[\1-\2]", gpus))) if gpus else 1
            hosts.append(replace(parse(host), slots=count or 1))
        return replace(found, hosts=host_lists.merged(hosts))
    if file := options.last("hostfile", "H"):
        raise _in_file("deepspeed", file)
    gpus = options.last("num-gpus")
    here = ListedHost(HERE, int(gpus) if gpus.isdecimal() and int(gpus) else 1)
    return replace(found, hosts=(here,))
