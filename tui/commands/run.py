"""`tfmux run`: launches a command on some hosts, without a cluster file."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from launcher.cluster import library
from launcher.cluster.addresses import HERE, SshDestination, is_loopback, loopback_problem
from launcher.cluster.choices import Framework
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.generated import RunRequest, default_name, first_tasks, render
from launcher.cluster.host_sources import parse, read_file
from launcher.cluster.placeholders import left_over, literal, typed
from launcher.cluster.read import loads
from launcher.cluster.saved_file import write
from launcher.cluster.shorthand import WORKER, ListedHost, ListedTask, Understood
from launcher.cluster.values import MOST_TASKS, nearest
from launcher.errors import ClusterFileError, Problem, TfmuxError
from launcher.files.listing import refusal
from launcher.hosts.dial import own_address
from launcher.hosts.ssh_config import READS_AT_ONCE, read_config
from launcher.paths import expand_user
from launcher.plan.shell_text import front_problem
from launcher.printable import escaped, printable
from tui.commands.launch import launch
from tui.streams import message, unread_input


def run(arguments: argparse.Namespace) -> int:
    """Launches a command as `up` launches a file; returns the run's exit code.

    Raises:
        TfmuxError: the options do not fit, or the file they make has a problem.
    """
    made = make_cluster(arguments)
    said = _say_unread()
    code = launch(lambda: made, arguments)
    if not said:
        _say_unread()  # it came later
    return code


def _say_unread() -> bool:
    """Says that tasks do not get what stands on stdin; False where nothing does."""
    if not (what := unread_input()):
        return False
    message(
        f"stdin is {what} that no task reads: each has an empty input; save it as a file, and have "
        "the command read that: sh -c 'COMMAND < FILE'"
    )
    return True


def make_cluster(arguments: argparse.Namespace) -> tuple[ClusterModel, str]:
    """Makes the cluster of the options and its file's text, which is also saved with `--save`.

    Raises:
        TfmuxError: the options do not fit, or the file they make has a problem.
    """
    command = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    _check_text("the command", *command)
    _check_text("--workdir", arguments.workdir or "")
    _check_text("--name", arguments.name or "")
    if not command:
        raise TfmuxError("there is no command: write such as tfmux run -n 4 -- python train.py")
    if problem := front_problem(command):
        raise TfmuxError(problem)
    save: Path | None = arguments.save
    if save is not None and os.path.exists(save):
        raise TfmuxError(f"{printable(str(save))} exists: name another file")
    framework = _framework(arguments.framework)
    jobs, listed = _jobs(arguments)
    here = _working_directory()
    base = here if save is None else save.absolute().parent
    logins = dict.fromkeys(task.login for tasks in jobs.values() for task in tasks)
    env, env_from = _variables(arguments.env)
    met = arguments.framework is not None and framework is not Framework.NONE
    text = render(
        RunRequest(
            command=_typed(command),
            jobs=jobs,
            name=arguments.name or default_name(command),
            workdir=_workdir(arguments.workdir, here, base, copied=_any_other(logins)),
            directory=_directory(arguments.directory, arguments.workdir),
            framework=framework,
            max_restarts=_max_restarts(arguments.max_restarts, framework),
            collect=[literal(path) for path in arguments.collect],
            env=env,
            env_from=env_from,
            identity=_identity(arguments.identity, logins),
            logins=listed,
            addresses=asyncio.run(_addresses(logins, arguments.address, met=met)),
        )
    )
    if save is not None:
        text = library.with_schema_line(text, save)
    source = "tfmux run" if save is None else printable(str(save))
    try:
        cluster = loads(text, source, base, for_launch=True)
    except ClusterFileError as error:
        raise TfmuxError("\n".join(map(_problem, error.problems))) from None
    if save is not None:
        write(save, text)
    return cluster, text


def _typed(command: Sequence[str]) -> list[str]:
    """The words of the command as a cluster file has them.

    Raises:
        TfmuxError: one has a misspelled placeholder.
    """
    words = []
    for number, word in enumerate(command, 1):
        try:
            words.append(typed(word))
            for sentence in left_over(word):
                message(f"word {number} of the command: {sentence}")
        except ValueError as error:
            raise TfmuxError(f"word {number} of the command: {error}") from None
    return words


_OPTIONS: Mapping[tuple[str | int, ...], str] = {
    ("name",): "--name",
    ("run", "workdir"): "--workdir",
    ("run", "directory"): "--directory",
    ("run", "collect"): "--collect",
    ("run", "framework"): "--framework",
    ("run", "max_restarts"): "--max-restarts",
    ("run", "env"): "-x",
    ("run", "env_from"): "-x",
}
"""Arguments by the keys of the file that is made of them."""


def _problem(problem: Problem) -> str:
    """What is wrong with an argument; there is no file whose line could be named."""
    path, found = problem.path, f" (found {problem.found})" if problem.found else ""
    if path[:2] == ("run", "command") and len(path) > 2:
        return f"word {int(path[2]) + 1} of the command: {problem.message}{found}"
    option = _OPTIONS.get(path[:1]) or _OPTIONS.get(path[:2]) or "the hosts"
    return f"{option}: {problem.message}{found}"


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise TfmuxError("the working directory no longer exists: change to another one") from None


def _workdir(given: str | None, here: Path, base: Path, *, copied: bool) -> str:
    """The `workdir` of a file in `base`, in which placeholders hold; `copied`: there are hosts to
    copy it to.

    Raises:
        TfmuxError: there is no such user as it names, or a directory is copied only where it is
            named by its whole path, and is not.
    """
    if not given and given is not None:
        return ""
    try:
        path = expand_user(given or ".")
    except TfmuxError as error:
        raise TfmuxError(f"--workdir {error}") from None
    if base == here and not path.is_absolute():
        return given or "."  # as in a file: a launch refuses a home
    if copied and not path.is_absolute() and (why := refusal(here / path)):
        raise TfmuxError(why)
    return str(Path(literal(str(here)), path))


def _directory(given: str | None, workdir: str | None) -> str:
    """The `directory` of the file; empty: there is none.

    Raises:
        TfmuxError: it is empty, or there is a `workdir` beside it.
    """
    if given is not None and workdir:
        raise TfmuxError(
            "--directory and --workdir exclude each other: the hosts have the directory already, "
            "or it is copied from this machine; remove one of them"
        )
    if given == "":
        raise TfmuxError('--directory is empty: write such as --directory "~/proj"')
    return given or ""


def _any_other(logins: Collection[SshDestination]) -> bool:
    """Whether a host is another machine."""
    return any(not is_loopback(login.host) or login.port is not None for login in logins)


def _variables(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The values that `-x NAME=VALUE` gives, and the names of `-x NAME`, as mpirun takes them.

    Raises:
        TfmuxError: a variable is not set here.
    """
    values: dict[str, str] = {}
    names: dict[str, None] = {}
    for word in words:
        _check_text("-x", word)
        name, equals, value = word.partition("=")
        if equals:
            values[name] = literal(value)
        elif name not in os.environ:
            raise TfmuxError(f"-x {printable(name, 60)}: it is not set here: write -x NAME=VALUE")
        else:
            names[name] = None
    return values, [name for name in names if name not in values]


def _identity(given: str | None, logins: Collection[SshDestination]) -> str:
    """The file of the key for all hosts; empty: those of `ssh`.

    Raises:
        TfmuxError: no host is reached by SSH.
    """
    if given is None:
        return ""
    if not _any_other(logins):
        raise TfmuxError("--identity is for hosts that are reached by SSH: write -H, or remove it")
    path = expand_user(given)
    return given if given.startswith("~") else str(path.absolute())


Jobs = Mapping[str, Sequence[ListedTask]]


def _jobs(arguments: argparse.Namespace) -> tuple[Jobs, tuple[ListedHost, ...]]:
    """Reads the tasks of each job, and what their lists say of the hosts.

    Raises:
        TfmuxError: the options contradict each other, or a list is wrong.
    """
    count: int | None = arguments.n
    lists = {"-H": arguments.hosts, "--hostfile": arguments.hostfile, "-n": count}
    if arguments.ps is not None or arguments.workers is not None:
        given = [name for name, value in lists.items() if value is not None]
        if given:
            raise TfmuxError(f"{given[0]} does not go with --ps and --workers: remove it")
        if arguments.ps is None or arguments.workers is None:
            raise TfmuxError("--ps and --workers go together: write such as --ps tf1 --workers tf2")
        texts = {"ps": ("--ps", arguments.ps), WORKER: ("--workers", arguments.workers)}
        read = {job: parse(text, option) for job, (option, text) in texts.items()}
        found: Jobs = {job: _of_one_job(each, texts[job][0]) for job, each in read.items()}
        listed = [host for each in read.values() for host in each.logins()]
    else:
        if arguments.hosts is not None and arguments.hostfile is not None:
            raise TfmuxError("-H and --hostfile: remove one of them")
        if count is not None and count < 1:
            raise TfmuxError(f"-n {count}: write a number of tasks from 1 on")
        found, listed = _equal(arguments, count)
    tasks = sum(map(len, found.values()))
    if tasks > MOST_TASKS:
        raise TfmuxError(f"{tasks:,} tasks are too many: a run has at most {MOST_TASKS:,}")
    return found, tuple(listed)


def _of_one_job(understood: Understood, option: str) -> tuple[ListedTask, ...]:
    """The tasks of a list for one job.

    Raises:
        TfmuxError: it names jobs.
    """
    tasks = understood.tasks()
    if set(tasks) != {WORKER}:
        raise TfmuxError(f"{option} is for hosts, and this is {understood.what}: write the hosts")
    _say(option, understood)
    return tasks[WORKER]


def _say(option: str, understood: Understood) -> None:
    """Tells how a list was understood, where it could mean something else."""
    if understood.notes or understood.left_out or understood.form:
        message(f"{option}: {understood.sentence}")


def _equal(arguments: argparse.Namespace, count: int | None) -> tuple[Jobs, list[ListedHost]]:
    if arguments.hosts is not None:
        option, understood = "-H", parse(arguments.hosts, "-H")
    elif arguments.hostfile is not None:
        option, understood = "--hostfile", read_file(arguments.hostfile)
    else:
        here = ListedTask(HERE)
        return {WORKER: (here,) * (count or 1)}, []
    tasks = understood.tasks()
    if set(tasks) != {WORKER} and count is not None:
        raise TfmuxError(f"-n does not go with {understood.what}: remove it")
    _say(option, understood)
    try:
        first = {job: first_tasks(each, count) for job, each in tasks.items()}
    except ValueError as error:
        raise TfmuxError(f"-n {error}") from None
    return first, list(understood.logins())


def _framework(word: str | None) -> Framework:
    if word is None:
        return Framework.TENSORFLOW
    try:
        return Framework(word)
    except ValueError:
        known = ", ".join(Framework)
        hint = nearest(word, Framework, f"it is one of {known}")
        raise TfmuxError(f"--framework {printable(word, 60)}: {hint}") from None


def _check_text(what: str, *words: str) -> None:
    """Checks that words can be written into a cluster file.

    Raises:
        TfmuxError: one has bytes that are not UTF-8 (Python keeps them as surrogates).
    """
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise TfmuxError(
                f"{what}: {escaped(word)} is not UTF-8, as a cluster file must be: rename the "
                "file, or put the command into a script"
            ) from None


def _max_restarts(count: int | None, framework: Framework) -> int | None:
    """Reads how often all tasks may start again.

    Raises:
        TfmuxError: it is no such number, or tasks of this framework do not start together.
    """
    if count is not None and not framework.meets:
        known = ", ".join(one for one in Framework if one.meets)
        raise TfmuxError(
            f"--max-restarts starts all ranks again: name them with --framework, one of {known}"
        )
    if count is not None and count < 0:
        raise TfmuxError(f"--max-restarts {count}: write a number from 0 on")
    return count


async def _addresses(
    logins: Collection[SshDestination], own: str | None, *, met: bool
) -> dict[str, str]:
    """This machine's address for the other hosts, to which `localhost` is another machine; `own`
    where it is given. The tasks of hosts that are to have `met` do so by their addresses.

    Raises:
        TfmuxError: `own` is given, and no host is this machine; hosts that are to meet are behind
            ports of this machine.
    """
    here = [login for login in logins if is_loopback(login.host) and login.port is None]
    others = [login for login in logins if login not in here]
    names = dict(zip(others, await _host_names(others), strict=True))
    for login, name in names.items():
        other = next((each for each in logins if each != login), None)
        if other is not None and is_loopback(name):
            problem = loopback_problem(name, login.host, other.host)
            if met:
                raise TfmuxError(f"{problem}, in a cluster file")
            message(problem)
            break
    if own is not None and not here:
        raise TfmuxError("--address is for localhost, which is not among the hosts: remove it")
    if own is None and here and len(logins) > 1:
        own = await asyncio.to_thread(own_address, list(names.values()))
        message(f"localhost is {own} to the other hosts (another address: --address)")
    return {} if own is None else dict.fromkeys(map(str, here), own)


async def _host_names(logins: Collection[SshDestination]) -> list[str]:
    """`HostName` of each login in `ssh_config`, else its own name."""
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def name(login: SshDestination) -> str:
        try:
            async with gate:
                config = await read_config(login.host, login.host, login.user, login.port)
        except TfmuxError:
            return login.host  # the launch says it
        return config.get("hostname") or login.host

    return await asyncio.gather(*map(name, logins))
