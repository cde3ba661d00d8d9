"""The command line, read before TensorFlow is imported: `--help` and mistakes answer at once."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, NoReturn

from trainer.errors import UsageError
from trainer.modes import MODES, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOUR = "tour"


class Options(argparse.Namespace):
    """What the flags said. A mode reads the fields of the groups it takes."""

    # role
    job_name: str | None
    task_index: int | None
    ps_hosts: str | None
    worker_hosts: str | None
    chief_hosts: str | None
    grace: float
    threads: int
    # data
    data: str | None
    batch: int
    # training
    steps: int
    learning_rate: float
    learning_rate_decay: float
    l2: float
    average_decay: float
    seed: int
    log_every: int
    # devices
    devices: int = 1
    # downpour
    fetch_every: int
    push_every: int
    # towers
    model: str
    update: str
    epochs: float | None
    momentum: float
    # sync
    replicas_to_aggregate: int | None
    log_batches: str | None
    # logdir
    logdir: str | None
    save_secs: float
    resume: str | None
    # converting
    to: str
    format: str
    shards: int
    # following
    poll_secs: float


def parse(argv: Sequence[str]) -> tuple[Mode, Options]:
    """The mode and its options.

    Raises:
        UsageError: An unknown mode or flag, named with its nearest neighbour, or a bad value.
        SystemExit: With status 0 after `--help` has been printed.
    """
    name, rest = (argv[0], list(argv[1:])) if argv else ("", [])
    if name == TOUR and rest and not rest[0].startswith("-"):
        name, rest = f"{TOUR} {rest[0]}", rest[1:]
    if name in ("-h", "--help") or (name == TOUR and rest[:1] in (["-h"], ["--help"])):
        print(_overview())
        raise SystemExit(0)
    if name not in MODES:
        if not name or name.startswith("-"):
            raise UsageError(f"no mode given; one of {', '.join(MODES)}")
        if name == TOUR:
            tours = [mode.removeprefix(f"{TOUR} ") for mode in MODES if mode.startswith(TOUR)]
            raise UsageError(f"which tour? one of {', '.join(tours)}")
        raise UsageError(f"unknown mode {name!r}{_nearest(name, MODES)}")
    mode = MODES[name]
    parser = _parser(mode)
    options, unknown = parser.parse_known_args(_hyphens(rest), namespace=Options())
    for word in unknown:
        flag = word.split("=", 1)[0]
        if flag.startswith("-"):
            known = [known for known in parser._option_string_actions if known.startswith("--")]
            raise UsageError(f"unknown flag {flag}{_nearest(flag, known)}")
        raise UsageError(f"{word!r} belongs to no flag")
    return mode, options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def _parser(mode: Mode) -> _Parser:
    parser = _Parser(
        prog=f"python -m trainer {mode.name}",
        description=mode.summary[0].upper() + mode.summary[1:] + ".",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for group in mode.flags:
        GROUPS[group](parser)
    return parser


def _role(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("role (default: TF_CONFIG)")
    group.add_argument(
        "--job-name", default=None, metavar="JOB", help="this task's job: ps, worker …"
    )
    group.add_argument(
        "--task-index",
        "--task-id",
        default=None,
        type=_index,
        metavar="N",
        help="this task's index",
    )
    for job in ("ps", "worker", "chief"):
        group.add_argument(
            f"--{job}-hosts",
            default=None,
            metavar="HOST:PORT,…",
            help=f"the {job} tasks' addresses",
        )
    group.add_argument(
        "--grace",
        default=10.0,
        type=_positive(float),
        metavar="SECONDS",
        help="time between TERM and KILL: what a ps may use to outlast its workers",
    )
    group.add_argument(
        "--threads",
        default=0,
        type=_natural,
        metavar="N",
        help="threads an operation may use; 0: this host's cores, shared with the cluster's "
        "other tasks on it",
    )


def _data(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        default=None,
        metavar="DIR",
        help="IDX or TFRecord files (default: embedded digits)",
    )
    group.add_argument(
        "--batch", default=100, type=_positive(int), metavar="N", help="images a step"
    )


def _training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    add = group.add_argument
    add("--steps", default=2000, type=_positive(int), metavar="N", help="global steps to train for")
    add(
        "--learning-rate",
        default=0.2,
        type=_positive(float),
        metavar="RATE",
        help="its start value (None: 0.2 for the mlp, 0.02 for the cnn)",
    )
    add(
        "--learning-rate-decay",
        default=0.99,
        type=_positive(float),
        metavar="FACTOR",
        help="applied to the learning rate once an epoch",
    )
    add("--l2", default=0.0001, type=_not_negative, metavar="WEIGHT", help="L2 regularisation")
    add(
        "--average-decay",
        default=0.99,
        type=_fraction,
        metavar="DECAY",
        help="of the weights' moving average, per global step",
    )
    add("--seed", default=1, type=int, metavar="N", help="of initial weights and shuffling")
    add("--log-every", default=100, type=_positive(int), metavar="N", help="local steps a line")


def _devices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("devices").add_argument(
        "--devices",
        default=1,
        type=_positive(int),
        metavar="N",
        help="GPUs of a task, or logical CPU devices where it has fewer GPUs; one batch each",
    )


def _towers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("towers")
    add = group.add_argument
    add("--model", default="mlp", choices=("mlp", "cnn"), help="which network")
    add(
        "--update",
        default="sync",
        choices=("sync", "async"),
        help="average the towers' gradients, or apply each tower's as they come",
    )
    add("--epochs", default=None, type=_positive(float), metavar="N", help="instead of --steps")
    add(
        "--momentum",
        default=0.9,
        type=_fraction,
        metavar="M",
        help="Nesterov momentum of the cnn",
    )
    add("--threads", default=0, type=_natural, metavar="N", help="threads an operation may use")
    add("--grace", default=10.0, type=_positive(float), metavar="SECONDS", help=argparse.SUPPRESS)
    parser.set_defaults(log_every=10, learning_rate=None)


def _downpour(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Downpour SGD")
    for what in ("fetch", "push"):
        group.add_argument(
            f"--{what}-every",
            default=1,
            type=_positive(int),
            metavar="K",
            help=f"local steps between two {what}es of all weights",
        )


def _sync(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("synchronous updates")
    group.add_argument(
        "--replicas-to-aggregate",
        default=None,
        type=_positive(int),
        metavar="N",
        help="gradients an update waits for; fewer than workers: the slowest are backups "
        "(default: all)",
    )
    group.add_argument(
        "--log-batches",
        default=None,
        metavar="FILE",
        help="the chief appends which worker's which batches each update averaged",
    )


def _following(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checkpoints to follow")
    add = group.add_argument
    add("--logdir", required=True, metavar="DIR", help="where the chief saves")
    add(
        "--poll-secs",
        default=0.5,
        type=_positive(float),
        metavar="SECONDS",
        help="time between two looks",
    )
    add(
        "--steps",
        default=None,
        type=_positive(int),
        metavar="N",
        help="leave after a checkpoint of at least this global step (default: on TERM)",
    )
    add(
        "--resume",
        default=None,
        metavar="RUN",
        help="also take this run's checkpoints (default: TFMUX_RESUME)",
    )
    add("--grace", default=10.0, type=_positive(float), metavar="SECONDS", help=argparse.SUPPRESS)


def _converting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("conversion")
    add = group.add_argument
    add("--data", default=None, metavar="DIR", help="what to convert (default: embedded digits)")
    add("--to", required=True, metavar="DIR", help="where to write; made if missing")
    add("--format", default="tfrecord", choices=("tfrecord", "idx"), help="what to write")
    add("--shards", default=4, type=_positive(int), metavar="N", help="TFRecord files a split")


def _logdir(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checkpoints and summaries (the chief's disk)")
    add = group.add_argument
    add("--logdir", default=None, metavar="DIR", help="where they go; without it nothing is kept")
    add(
        "--save-secs",
        default=30.0,
        type=_positive(float),
        metavar="SECONDS",
        help="time between checkpoints",
    )
    add(
        "--resume",
        default=None,
        metavar="RUN",
        help="go on from this run's checkpoint (default: TFMUX_RESUME)",
    )


GROUPS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "role": _role,
    "data": _data,
    "training": _training,
    "devices": _devices,
    "towers": _towers,
    "downpour": _downpour,
    "sync": _sync,
    "following": _following,
    "converting": _converting,
    "logdir": _logdir,
}


def _overview() -> str:
    width = max(map(len, MODES))
    lines = "\n".join(f"  {mode.name:{width}}  {mode.summary}" for mode in MODES.values())
    return (
        "usage: python -m trainer MODE [--flag=value …]\n\n"
        f"modes:\n{lines}\n\npython -m trainer MODE --help lists a mode's flags."
    )


def _hyphens(words: list[str]) -> list[str]:
    """Classic scripts spell flags with underscores; both spellings are the same flag."""
    return [re.sub("^--[^=]*", lambda name: name.group().replace("_", "-"), word) for word in words]


def _nearest(word: str, known: Sequence[str] | dict[str, Mode]) -> str:
    close = difflib.get_close_matches(word.replace("_", "-"), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(known))}"


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        value = _number(text, kind)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
        return value

    return convert


def _not_negative(text: str) -> float:
    value = _number(text, float)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return value


def _fraction(text: str) -> float:
    value = _number(text, float)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def _natural(text: str) -> int:
    value = _number(text, int)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return int(value)


def _index(text: str) -> int:
    if text.strip("'\"") != text:
        raise argparse.ArgumentTypeError(
            f"{text!r} has quotes in it; write {text.strip(chr(39) + chr(34))}"
        )
    return _natural(text)


def _number(text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
