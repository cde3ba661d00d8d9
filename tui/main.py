"""The command line. Textual is imported only when a screen opens, and little else before the
command is known: `--help` answers at once."""

from __future__ import annotations

import gc
import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # `python -m` puts the working directory first: its `queue.py` is not Python's

from functools import partial
from importlib import import_module

from tui.exits import Exit

TYPE_CHECKING = False  # `typing` and `pathlib` are a fifth of what `--help` takes
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from launcher.client.launcher_process import LauncherProcess

EPILOG = """\
`tfmux` alone opens the home screen; `tfmux FILE` opens that cluster, ready to launch.
Without a terminal on stdin and stdout a run is headless: logs on stdout, the rest on stderr.
Coming from a TensorFlow 1 tutorial: `tfmux demo classic`, and docs/tutorials.md.

exit codes:
""" + "\n".join(f"  {code:<5}{code.meaning.replace('`', '')}" for code in Exit)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    _open_standard_streams()
    from tui.streams import StdoutError, message

    try:
        try:
            return _main(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        return Exit.FAILED
    except StdoutError as error:
        message(f"stdout: {error.strerror}")
        return Exit.FAILED


def _main(words: list[str]) -> int:
    sys.modules.setdefault("asyncssh.crypto.x509", None)  # type: ignore[arg-type]  # `ssh_library`
    if not words:
        return _home()
    arguments = parse(words)
    if arguments.command is None:
        return _version()
    from launcher.errors import ClusterFileError, TfmuxError

    try:
        return _run(arguments.command, arguments)
    except ClusterFileError as error:
        from tui.streams import without_secrets

        print(without_secrets(str(error)), file=sys.stderr)
        return Exit.USAGE
    except TfmuxError as error:
        from tui.streams import message

        message(str(error))
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.KILLED


def _open_standard_streams() -> None:
    """Opens the null device as each of the three that was closed (`tfmux up … >&-`): Python has no
    `sys.stdout` then, and the next file or socket would be the standard output of children."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: this one
            os.set_inheritable(fd, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))
    from tui.streams import open_streams

    open_streams()


def _ignore_interrupts_at_exit() -> None:
    """Ignores Ctrl-C once the exit code is certain: the interpreter gives the signal back to the
    system on its way out, and the command would die of it."""
    import atexit
    import signal

    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


_WITHOUT_SCREEN = frozenset(("--headless", "--json"))
"""Options with which a cluster file is launched, not opened."""


def parse(words: list[str]) -> argparse.Namespace:
    """The command of a command line with words, and its arguments; a usage error ends the
    program."""
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        opens = "open" if _WITHOUT_SCREEN.isdisjoint(words) else "up"
        words = [opens, *words] if _is_file(words[0]) else _complain(words[0])
    one = words[0] in COMMANDS and words[0] != "completion"
    parser = build_parser(words[0] if one else None)
    if words[0] == "run":  # where `-npernode` would be `-n pernode`
        words = ["--npernode" if word == "-npernode" else word for word in words]
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        meant = _meant_option(unknown[0]) if arguments.command == "run" else ""
        parser.error(meant or f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def _meant_option(word: str) -> str:
    """What to write instead of an option of mpirun or torchrun; empty where it is none."""
    name = word.partition("=")[0]
    meant = _OTHER_OPTIONS.get(name.lstrip("-").replace("_", "-"))
    return f"{name}: {meant}" if meant else ""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """All commands, with their options, or with those of one command alone."""
    import argparse  # the home screen opens sooner without it

    # The terminal's width is looked up once for all arguments.
    formatter = partial(argparse.RawDescriptionHelpFormatter, width=_help_width())
    parser = argparse.ArgumentParser(
        prog="tfmux",
        formatter_class=formatter,
        description="Configure, launch, watch and kill TensorFlow clusters from one terminal.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, **options: Any) -> argparse.ArgumentParser | None:
        """A command, whose options are to be added; None where they are not asked for."""
        added = commands.add_parser(name, formatter_class=formatter, **options)
        return added if only in (None, name) else None

    if demo := command("demo", help="run a demo training on this machine, without configuration"):
        demo.add_argument(
            "name", nargs="?", default="async", help="name of the demo (default: async)"
        )
        demo.add_argument("--list", action="store_true", help="list the demos")
        _output_options(demo)

    if up := command("up", help="launch a cluster file"):
        up.add_argument("file", type=_path, nargs="?", metavar="FILE", help="the cluster file")
        up.add_argument(
            "--again",
            metavar="RUN",
            nargs="?",
            const="",
            help="launch this run again as it was, instead of a FILE (default: the last run)",
        )
        up.add_argument(
            "--resume",
            metavar="RUN",
            help="use the log directory of this run, to continue from its checkpoints",
        )
        _hosts_options(up)
        _output_options(up)

    if run := command(
        "run",
        help="launch a command without a cluster file",
        usage="tfmux run [-n N] [-H HOST[:SLOTS],… | --hostfile FILE] [OPTION …] -- COMMAND …",
    ):
        _placement_options(run)
        run.add_argument(
            "words", nargs=argparse.REMAINDER, metavar="COMMAND", help="program and its arguments"
        )
        _output_options(run)

    if opened := command("open", help="open cluster files in the UI, ready to launch"):
        opened.add_argument(
            "files", type=_path, nargs="+", metavar="FILE", help="cluster files to open"
        )

    if plan := command(
        "plan", help="print the start order, commands and environments; start nothing"
    ):
        plan.add_argument("file", type=_path, metavar="FILE", help="the cluster file")
        plan.add_argument("--json", action="store_true", help="print a JSON object")
        _hosts_options(plan)

    if imported := command(
        "import", help="convert a TF_CONFIG, host file, TFJob or command line to a cluster file"
    ):
        imported.add_argument(
            "file",
            type=_path,
            nargs="?",
            default="-",
            metavar="FILE",
            help="file to convert (default: stdin)",
        )
        imported.add_argument(
            "--save", type=_path, metavar="FILE", help="write the cluster file to FILE"
        )

    if check := command("check", help="check every host before a launch; start nothing"):
        check.add_argument("file", type=_path, metavar="FILE", help="the cluster file")
        check.add_argument("--json", action="store_true", help="print a JSON object")
        check.add_argument(
            "--accept-new", action="store_true", help="trust unknown host keys, and print them"
        )
        _hosts_options(check)

    command("schema", help="print the JSON Schema of the cluster file")

    if ps := command("ps", help="list active runs"):
        form = ps.add_mutually_exclusive_group()
        form.add_argument("-q", "--quiet", action="store_true", help="print run ids only")
        form.add_argument("--json", action="store_true", help="print a JSON array")

    if attach := command("attach", help="show an active run again"):
        _run_options(attach)
        _output_options(attach)

    if kill := command("kill", help="end one run or all runs, and print the receipt"):
        _run_options(kill)
        kill.add_argument("--all", action="store_true", help="kill every active run")
        kill.add_argument(
            "--force",
            action="store_true",
            help="send KILL at once: no grace period, no results fetched",
        )
        kill.add_argument(
            "--forget",
            action="store_true",
            help="remove the run from the list, even if a host has not confirmed its end",
        )

    if serve := command("serve", help="serve the UI to browsers, on the loopback address"):
        serve.add_argument(
            "file", type=_path, nargs="?", metavar="FILE", help="cluster file to open in each page"
        )
        serve.add_argument(
            "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
        )
        serve.add_argument(
            "--port",
            type=int,
            default=8000,
            help="port to listen on; 0: any free port (default: %(default)s)",
        )
        serve.add_argument(
            "--tls-cert", type=_path, metavar="FILE", help="certificate (PEM); serves over TLS"
        )
        serve.add_argument(
            "--tls-key", type=_path, metavar="FILE", help="private key of the certificate (PEM)"
        )
        serve.add_argument(
            "--insecure",
            action="store_true",
            help="allow other addresses than the loopback without TLS",
        )

    if logs := command("logs", help="print the logs of an active or past run"):
        _any_run_argument(logs)
        logs.add_argument(
            "task", nargs="?", metavar="TASK", help="task, such as worker:0 (default: all tasks)"
        )
        logs.add_argument("-f", "--follow", action="store_true", help="follow log output")
        logs.add_argument(
            "--raw", action="store_true", help="print bytes unchanged, on a terminal too"
        )

    if stacks := command("stacks", help="print what every task of a run is doing (stack traces)"):
        _active_run_argument(stacks)
        stacks.add_argument(
            "tasks",
            nargs="*",
            metavar="TASK",
            help="tasks whose stacks are printed in full, such as worker:0",
        )
        stacks.add_argument("--json", action="store_true", help="print a JSON object")

    if collect := command("collect", help="fetch results of a run from its hosts"):
        _any_run_argument(collect)
        collect.add_argument(
            "patterns",
            nargs="*",
            metavar="PATTERN",
            help="paths in the workdir, such as out, '*.ckpt' or 'out/*/best' (default: all)",
        )

    if remove := command("rm", help="delete past runs with their logs and fetched results"):
        remove.add_argument(
            "runs",
            nargs="*",
            metavar="RUN",
            help="run id or its beginning, or name of a cluster with one run "
            "(with --hosts, without any: all past runs)",
        )
        remove.add_argument(
            "--force",
            action="store_true",
            help="delete runs with results too, although these are lost",
        )
        remove.add_argument(
            "--hosts",
            action="store_true",
            help="delete what runs have left on their hosts, after a question; the runs stay",
        )
        remove.add_argument("--yes", action="store_true", help="with --hosts: do not ask")

    command("doctor", help="print versions and paths for a bug report")

    if completion := command("completion", help="print a shell completion script"):
        completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell")
        completion.set_defaults(parser=parser)
    return parser


def _path(word: str) -> Path:
    from pathlib import Path

    return Path(word)


def _help_width() -> int:
    """Width of the help, as argparse finds it with the help of slower modules."""
    columns = os.environ.get("COLUMNS", "")
    try:
        return (int(columns) if columns.isdecimal() else os.get_terminal_size(1).columns) - 2
    except OSError:  # not a terminal
        return 78


def _placement_options(parser: argparse.ArgumentParser) -> None:
    from launcher.cluster.choices import Framework

    parser.add_argument(
        "-n",
        "-np",
        type=int,
        metavar="N",
        help="number of tasks (default: one for each slot of the hosts)",
    )
    parser.add_argument(
        "-H",
        "--hosts",
        "--host",
        "-host",
        "-hosts",
        metavar="HOST[:SLOTS],…",
        help="hosts, as ssh knows them (default: this machine)",
    )
    parser.add_argument(
        "--hostfile",
        "-hostfile",
        "-machinefile",
        "--machinefile",
        type=_path,
        metavar="FILE",
        help="file of hosts, with lines such as: tf1 slots=2",
    )
    parser.add_argument("--ps", metavar="HOST[:SLOTS],…", help="hosts of the parameter servers")
    parser.add_argument(
        "--workers", metavar="HOST[:SLOTS],…", help="hosts of the workers, with --ps"
    )
    parser.add_argument(
        "-x",
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="environment variable for the tasks (default: its value in this shell); repeatable",
    )
    parser.add_argument(
        "--identity",
        "-i",
        metavar="FILE",
        help="private key for the hosts (default: as ssh chooses)",
    )
    parser.add_argument(
        "--framework",
        help=f"framework of the ranks: {', '.join(Framework)} (default: {Framework.TENSORFLOW})",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="restart all tasks when one fails, at most N times (torch, jax, mpi-like)",
    )
    parser.add_argument("--name", help="name of the cluster (default: name of the script)")
    parser.add_argument(
        "--workdir", help="directory to copy to the hosts (default: the current one; '': none)"
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="existing directory on the hosts: tasks start in it, and nothing is copied",
    )
    parser.add_argument(
        "--address",
        help="address of this machine for the other hosts (default: from the route to them)",
    )
    parser.add_argument(
        "--collect",
        action="append",
        default=[],
        metavar="PATTERN",
        help="path or pattern in the workdir to fetch at the end; repeatable",
    )
    parser.add_argument("--save", type=_path, metavar="FILE", help="write the cluster file to FILE")


def _hosts_options(parser: argparse.ArgumentParser) -> None:
    from launcher.cluster.choices import HostSource

    parser.add_argument(
        "--hosts-from",
        choices=tuple(HostSource),
        help="take node0, node1, … from this shell's Slurm job, or from a host file",
    )
    parser.add_argument(
        "--hostfile",
        type=_path,
        metavar="FILE",
        help="host file (default: the one that PBS or mpirun names in the environment)",
    )


def _active_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="active run: name of its cluster, or run id or its beginning "
        "(default: the only active run)",
    )


def _any_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="name of a cluster, run id, or the beginning of one: the active run, else the newest "
        "(default: the only active run)",
    )


def _run_options(parser: argparse.ArgumentParser) -> None:
    _active_run_argument(parser)
    parser.add_argument(
        "--file", type=_path, help="cluster file of the run, on a machine that did not launch it"
    )


def _output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--headless", action="store_true", help="without the UI: logs on stdout")
    parser.add_argument(
        "--json", action="store_true", help="without the UI: events on stdout, as JSON lines"
    )
    parser.add_argument(
        "--quiet-remarks",
        action="store_true",
        help="with --headless: leave out TensorFlow's routine messages",
    )


COMMANDS = {
    "demo": "launch.demo",
    "up": "launch.up",
    "run": "run.run",
    "open": "open.open_files",
    "plan": "plan.plan",
    "check": "check.check",
    "import": "import_cluster.import_cluster",
    "schema": "plan.schema",
    "ps": "ps.ps",
    "attach": "attach.attach",
    "kill": "kill.kill",
    "serve": "serve.serve",
    "logs": "attach.logs",
    "stacks": "stacks.stacks",
    "collect": "collect.collect",
    "rm": "rm.rm",
    "doctor": "doctor.doctor",
    "completion": "completion.completion",
}
"""For each command the module of `tui.commands` and the function in it."""
_MEANT = {
    **dict.fromkeys(("launch", "start"), "up"),
    **dict.fromkeys(("stop", "cancel", "down"), "kill"),
    **dict.fromkeys(("list", "ls", "status"), "ps"),
    **dict.fromkeys(("remove", "delete", "prune"), "rm"),
    **dict.fromkeys(("again", "rerun", "retry"), "up --again"),
}
"""Words of other programs for what a command does: in letters they are near to another one."""
_TUTORIALS = "`tfmux demo classic` runs a tutorial's program, and docs/tutorials.md has the others"

_SLOTS_MEANT = "write the hosts with their numbers of tasks, such as -H tf1:4,tf2:4"
_ONCE = "leave it out: tfmux run is called once, for all hosts"
_FIRST = "leave it out: rank 0's host and a free port are chosen at the launch"
_PLACES = "leave it out: processes are not bound; -H tf1:4 says where tasks are"
_OTHER_OPTIONS = {
    **dict.fromkeys(("nnodes", "nproc-per-node", "npernode", "ppn", "perhost", "N"), _SLOTS_MEANT),
    **dict.fromkeys(("num-machines", "num-processes", "num-nodes", "num-gpus"), _SLOTS_MEANT),
    **dict.fromkeys(("node-rank", "machine-rank", "standalone", "local-addr"), _ONCE),
    **dict.fromkeys(("master-addr", "master-port", "rdzv-endpoint", "rdzv-backend"), _FIRST),
    **dict.fromkeys(("rdzv-id", "rdzv-conf", "main-process-ip", "main-process-port"), _FIRST),
    **dict.fromkeys(("bind-to", "map-by", "rank-by", "oversubscribe", "rankfile", "rf"), _PLACES),
    **dict.fromkeys(("mca", "pmixmca", "prtemca"), "leave it out: no MPI library starts the tasks"),
    **dict.fromkeys(("genv", "genvlist", "envlist"), "write -x NAME or -x NAME=VALUE"),
    **dict.fromkeys(
        ("wdir", "wd", "chdir"), "write --workdir to copy it, --directory if hosts have it"
    ),
    **dict.fromkeys(("output-filename", "log-dir", "tee", "redirects"), "see tfmux logs"),
    **dict.fromkeys(("tag-output", "allow-run-as-root"), "leave it out: tfmux always does so"),
    **dict.fromkeys(("include", "nodelist", "w"), "write -H tf1,tf2"),
    **dict.fromkeys(("c", "num-proc", "ntasks"), "write -n N"),
    **dict.fromkeys(("l", "user"), "write it before the host, such as -H me@tf1"),
    **dict.fromkeys(("p", "port"), "write it after the login, such as -H me@tf1:2200"),
    "f": "write --hostfile FILE",
    "m": "write it after --, such as -- python -m train",
}
"""Options of mpirun, torchrun, srun and ssh, and what to write instead in `tfmux run`."""


def _home() -> int:
    from tui.streams import message, missing_terminal

    if missing := missing_terminal():
        message(f"the home screen needs a terminal on {missing}")
        build_parser().print_help(sys.stderr)
        return Exit.USAGE
    from tui.commands import open as opening

    return opening.home()


def _version() -> int:
    from importlib.metadata import version

    print(f"tfmux {version('tfmux')}")
    return Exit.SUCCESS


def _run(command: str, arguments: argparse.Namespace) -> int:
    _ignore_interrupts_at_exit()
    module, function = COMMANDS[command].split(".")
    process = arguments.process = _start_launcher(command, arguments)
    run: Callable[[argparse.Namespace], int]
    try:
        gc.disable()  # a tenth of an import's time goes into looks at modules, which stay
        try:
            run = getattr(import_module(f"tui.commands.{module}"), function)
        finally:
            gc.freeze()
            gc.enable()
        return run(arguments)
    finally:
        if process is not None:
            process.cancel()


def _start_launcher(command: str, arguments: argparse.Namespace) -> LauncherProcess | None:
    """A launcher process, where the command needs one: it imports as much as the command itself,
    at the same time."""
    ssh = False
    if command == "kill":
        if not arguments.run:
            return None
        from launcher.paths import runs_home
        from launcher.store.launcher_lock import is_abandoned
        from launcher.store.runs import RunFolder

        folder = RunFolder(runs_home() / arguments.run)
        if not is_abandoned(folder.path, folder.run_id):
            return None
        ssh = _mentions_ssh(folder.cluster_file)
    elif command == "up":
        from launcher.paths import runs_home

        file = arguments.file or runs_home() / (arguments.again or "") / "cluster.toml"
        ssh = _mentions_ssh(file)
    elif command not in ("demo", "run") or getattr(arguments, "list", False):
        return None
    elif command == "run":
        ssh = any((arguments.hosts, arguments.hostfile, arguments.ps, arguments.workers))
    from launcher.client.launcher_process import LauncherProcess

    return LauncherProcess(ssh=ssh)


def _mentions_ssh(file: Path) -> bool:
    """Whether a cluster file is likely to have hosts that are reached by SSH; who reads it says
    what is wrong with it."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as opened:
            return b"ssh" in opened.read(_LOOKED_AT)
    except OSError:
        return False


_LOOKED_AT = 1 << 20
"""Bytes at the beginning of a cluster file."""


def _is_file(word: str) -> bool:
    return os.path.exists(word) or "/" in word or word.endswith(".toml")


def _complain(word: str) -> list[str]:
    from launcher.cluster.values import nearest_word

    near = _MEANT.get(word) or nearest_word(word, COMMANDS)
    hint = f"did you mean {near!r}?" if near else "see tfmux --help"
    hint = _TUTORIALS if word in ("tutorial", "tutorials") else hint
    build_parser("").error(f"{word!r} is neither a command nor a cluster file; {hint}")


if __name__ == "__main__":
    sys.exit(main())
