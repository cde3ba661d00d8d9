"""The command line, read before TensorFlow is imported: `--help` and mistakes answer at once."""

import argparse
import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from trainer import role
from trainer.exceptions import UsageError
from trainer.modes import MODES, Mode

TOUR = "tour"
TF1 = "tf1"


def _number(kind: type[int] | type[float], accepts: Callable[[Any], bool], what: str) -> Any:
    """A converter to `kind` that refuses values which `accepts` does not hold for."""

    def convert(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            whole = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {whole}") from None
        if not accepts(value):
            raise argparse.ArgumentTypeError(f"{text!r} is {what}")
        return value

    return convert


def _index(text: str) -> Any:
    if (bare := text.strip("'\"")) != text:
        raise argparse.ArgumentTypeError(f"{text!r} has quotes in it; write {bare}")
    return NATURAL(text)


def _address(flag: str) -> Callable[[str], str]:
    """A converter of one `host:port`, checked as those of a cluster are."""
    return lambda text: role.addresses([text], flag)[0]


COUNT = _number(int, lambda value: value > 0, "not above 0")
A_CALL = _number(int, lambda value: 0 < value <= 256, "not from 1 to 256")
POSITIVE = _number(float, lambda value: value > 0, "not above 0")
FINITE = _number(float, lambda value: 0 < value < math.inf, "not a finite number above 0")
NATURAL = _number(int, lambda value: value >= 0, "below 0")
NOT_NEGATIVE = _number(float, lambda value: value >= 0, "below 0")
FRACTION = _number(float, lambda value: 0 <= value < 1, "not between 0 and 1")


class Flag(NamedTuple):
    """One flag, without `--`; a `bool` is a switch."""

    name: str
    help: str
    default: Any = None
    kind: Any = str
    metavar: str = "N"
    choices: tuple[str, ...] | None = None
    required: bool = False

    @property
    def names(self) -> list[str]:
        """The flag and the tutorials' other names for it."""
        return [f"--{name}" for name in (self.name, *ALIASES.get(self.name, "").split())]

    def add(self, group: Any, default: Any) -> None:
        """Declares the flag to argparse; `--help` names its default once."""
        if self.kind is bool:
            group.add_argument(*self.names, action="store_true", help=self.help)
            return
        value: dict[str, Any] = {"default": default, "type": self.kind, "required": self.required}
        value |= {"choices": self.choices} if self.choices else {"metavar": self.metavar}
        shown = "" if default is None else f" (default: {default})"
        group.add_argument(*self.names, help=self.help + shown, **value)


PARTS = ("dispatcher", "worker", "client")
# The tutorials' names of flags.
ALIASES = {
    "task-index": "task-id",
    "data": "data-dir data-path input-data",
    "batch": "batch-size",
    "steps": "training-steps train-steps max-steps num-steps",
    "epochs": "num-epochs",
    "learning-rate": "lr initial-learning-rate learning-rate-base",
    "learning-rate-decay": "decay",
    "l2": "weight-decay regularization-rate",
    "average-decay": "moving-average-decay",
    "log-every": "log-interval log-steps",
    "devices": "num-gpus num-devices n-gpus",
    "logdir": "train-dir log-dir model-dir checkpoint-dir output-dir",
    "save-secs": "save-interval-secs",
    "shards": "num-shards",
}
GRACE = Flag("grace", "time between TERM and KILL", 10.0, POSITIVE, "SECONDS")
THREADS = Flag(
    "threads", "threads for each operation; 0: the task's share of the cores", 0, NATURAL
)
DATA = Flag("data", "IDX or TFRecord files (default: embedded digits)", metavar="DIR")
STEPS = Flag("steps", "global steps to train for", 2000, COUNT)
RESUME = Flag(
    "resume", "accept the checkpoint of this run, too (default: TFMUX_RESUME)", metavar="RUN"
)
MODEL = Flag("model", "network to train", "mlp", choices=("mlp", "cnn", "cnn-tutorial"))
LOGDIR = Flag(
    "logdir", "directory for the chief's checkpoints (default: none are saved)", metavar="DIR"
)
ROLE = (
    Flag("job-name", "job of this task: ps, worker, …", metavar="JOB"),
    Flag("task-index", "index of this task in its job", None, _index),
    Flag("ps-hosts", "addresses of the ps tasks", metavar="HOST:PORT,…"),
    Flag("worker-hosts", "addresses of the worker tasks", metavar="HOST:PORT,…"),
    Flag("chief-hosts", "address of the chief", metavar="HOST:PORT"),
)
GROUPS: dict[str, tuple[Flag, ...]] = {
    "role": (
        *ROLE,
        GRACE,
        THREADS,
        Flag("reconnect-secs", "how long to wait for a lost ps", 60.0, POSITIVE, "SECONDS"),
        Flag("stay", "keep a ps running when all workers are done, as tfmux does", kind=bool),
    ),
    "data": (DATA, Flag("batch", "images per step", 100, COUNT)),
    "training": (
        STEPS,
        Flag(
            "learning-rate",
            "learning rate at step 0 (default: 0.2; 0.02 for a cnn)",
            None,
            POSITIVE,
        ),
        Flag("learning-rate-decay", "factor of the learning rate per epoch", 0.99, POSITIVE),
        Flag("l2", "weight of the L2 regularisation", 0.0001, NOT_NEGATIVE),
        Flag("average-decay", "decay of the moving averages per global step", 0.99, FRACTION),
        Flag("seed", "random seed of weights and shuffling", 1, NATURAL),
        Flag("log-every", "local steps between two lines of the log", 100, COUNT),
    ),
    "devices": (
        Flag("devices", "number of GPUs, else of logical CPU devices; one batch each", 1, COUNT),
    ),
    "calls of the session": (
        Flag("steps-per-call", "training steps in one call; 1: a classic loop", 10, A_CALL),
    ),
    "Downpour SGD": (
        Flag("fetch-every", "local steps between two fetches of all weights", 1, COUNT),
        Flag("push-every", "local steps between two pushes of all changes", 1, COUNT),
    ),
    "a slow worker": (
        Flag(
            "slow-worker",
            "index of a worker to slow down, as an example of a straggler",
            None,
            _index,
        ),
        Flag("slow-secs", "seconds that this worker sleeps at each step", 0.05, FINITE, "SECONDS"),
    ),
    "synchronous updates": (
        Flag(
            "replicas-to-aggregate",
            "gradients for one update; the slowest workers are backups (default: all)",
            kind=COUNT,
        ),
        Flag(
            "log-batches", "file in which the chief logs the batches of each update", metavar="FILE"
        ),
    ),
    "towers": (
        MODEL,
        Flag(
            "update",
            "one update from all towers, or one from each",
            "sync",
            choices=("sync", "async"),
        ),
        Flag("epochs", "epochs to train for, instead of --steps", None, FINITE),
        Flag("momentum", "Nesterov momentum of a cnn", 0.9, FRACTION),
        THREADS,
        GRACE,
    ),
    "checkpoints": (
        LOGDIR,
        Flag("save-secs", "time between checkpoints", 30.0, POSITIVE, "SECONDS"),
        RESUME,
    ),
    "following": (
        LOGDIR._replace(help="directory of the chief's checkpoints", required=True),
        MODEL,
        DATA,
        Flag("poll-secs", "time between checks for a new checkpoint", 0.5, FINITE, "SECONDS"),
        Flag("steps", "exit after this global step (default: at TERM)", None, COUNT),
        RESUME,
        GRACE,
    ),
    "conversion": (
        DATA,
        Flag("to", "directory to write to; created if missing", metavar="DIR", required=True),
        Flag("format", "format to write", "tfrecord", choices=("tfrecord", "idx")),
        Flag("shards", "TFRecord files per split", 4, COUNT),
        Flag(
            "names",
            "TFRecord files in numbered shards, or the single ones that tutorials read",
            "shards",
            choices=("shards", "tutorials"),
        ),
    ),
    "tf.data service": (
        Flag("part", "role of this task", choices=PARTS, required=True),
        Flag(
            "dispatcher",
            "address of the dispatcher",
            None,
            _address("--dispatcher"),
            "HOST:PORT",
            required=True,
        ),
        Flag(
            "address",
            "address that this server listens on",
            None,
            _address("--address"),
            "HOST:PORT",
        ),
        GRACE,
    ),
    "classic": (
        *ROLE,
        DATA,
        STEPS,
        LOGDIR,
        Flag("sync", "SyncReplicasOptimizer instead of asynchronous updates", kind=bool),
    ),
}


def parse(argv: Sequence[str]) -> tuple[Mode, argparse.Namespace]:
    """The mode, and its name and flags.

    Raises:
        UsageError: An unknown mode or flag, named with its nearest neighbour, or a bad value.
        SystemExit: With status 0 after `--help` has been printed.
    """
    name, rest = (argv[0], list(argv[1:])) if argv else ("", [])
    if name == TOUR and rest and not rest[0].startswith("-"):
        name, rest = f"{TOUR} {rest[0]}", rest[1:]
    if {"-h", "--help"} & {name, *(rest[:1] if name == TOUR else [])}:
        print(_overview())
        raise SystemExit(0)
    if name == TOUR:
        tours = [mode.removeprefix(f"{TOUR} ") for mode in MODES if mode.startswith(TOUR)]
        raise UsageError(f"no tour given; one of {', '.join(tours)}")
    if not name or name.startswith("-"):
        raise UsageError(f"no mode given; one of {', '.join(MODES)}")
    if name not in MODES:
        raise UsageError(f"unknown mode {name!r}{_nearest(name, MODES)}")
    mode = MODES[name]
    if mode.name == TF1:  # whatever follows the script is its own
        if {"-h", "--help"} & set(rest[:1]):
            print(f"usage: python -m trainer {mode.summary.partition(': ')[2]}")
            raise SystemExit(0)
        if not rest or rest[0].startswith("-"):
            raise UsageError("give a script: python -m trainer tf1 SCRIPT ARGUMENTS…")
        if not os.path.isfile(rest[0]):
            raise UsageError(f"{rest[0]}: no such file")
        return mode, argparse.Namespace(mode=mode.name, words=rest)
    parser = _Parser(
        prog=f"python -m trainer {mode.name}",
        description=mode.summary[0].upper() + mode.summary[1:] + ".",
        allow_abbrev=False,
    )
    for title in mode.flags:
        group = parser.add_argument_group(title)
        for flag in GROUPS[title]:
            flag.add(group, mode.defaults.get(flag.name, flag.default))
    # Classic scripts spell flags with underscores; both spellings are the same flag.
    words = [re.sub("^--[^=]*", lambda flag: flag[0].replace("_", "-"), word) for word in rest]
    options, unknown = parser.parse_known_args(words)
    options.mode = mode.name
    for word in unknown:
        _refuse(word.split("=", 1)[0], mode)
    return mode, options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # Of a flag's names the first is enough.
        raise UsageError(re.sub(r"^(argument )?(--[\w-]+)(/--[\w-]+)*:", r"\2:", message))


def _refuse(flag: str, mode: Mode) -> NoReturn:
    """Says what is wrong with a flag that `mode` does not have."""
    if not flag.startswith("-"):
        raise UsageError(f"unexpected argument {flag!r}")
    modes = [each for each in MODES.values() if not each.name.startswith(TOUR)]
    if others := [each.name for each in modes if flag in _names(each)]:
        raise UsageError(f"{mode.name} has no {flag}; it belongs to {', '.join(others)}")
    raise UsageError(f"unknown flag {flag}{_nearest(flag, _names(mode))}")


def _names(mode: Mode) -> list[str]:
    return [name for group in mode.flags for flag in GROUPS[group] for name in flag.names]


def _overview() -> str:
    width = max(map(len, MODES))
    lines = "\n".join(f"  {mode.name:{width}}  {mode.summary}" for mode in MODES.values())
    return (
        "usage: python -m trainer MODE [--flag=value …]\n\n"
        f"modes:\n{lines}\n\npython -m trainer MODE --help lists a mode's flags."
    )


def _nearest(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(word.replace("_", "-"), names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(names)}" if names else "; this mode has no flags"
