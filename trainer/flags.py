"""The command line, read before TensorFlow is imported: `--help` and mistakes answer at once."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, Any, NoReturn

from trainer.errors import UsageError
from trainer.modes import MODES, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TOUR = "tour"


class Options(argparse.Namespace):
    """What the flags said; a mode has the fields of the groups of flags it takes."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


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


COUNT = _number(int, lambda value: value > 0, "not above 0")
A_CALL = _number(int, lambda value: 0 < value <= 256, "not from 1 to 256")
POSITIVE = _number(float, lambda value: value > 0, "not above 0")
NATURAL = _number(int, lambda value: value >= 0, "below 0")
NOT_NEGATIVE = _number(float, lambda value: value >= 0, "below 0")
FRACTION = _number(float, lambda value: 0 <= value < 1, "not between 0 and 1")


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag, without `--`; `also` are the tutorials' other names for it."""

    name: str
    help: str
    default: Any = None
    kind: Any = str
    metavar: str | None = "N"
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    required: bool = False
    switch: bool = False

    def add(self, group: Any, default: Any) -> None:
        """Declares the flag to argparse; `--help` names its default once."""
        names = [f"--{name}" for name in (self.name, *self.also)]
        if self.switch:
            group.add_argument(*names, action="store_true", help=self.help)
            return
        shown = "" if default is None else f" (default: {default})"
        group.add_argument(
            *names,
            default=default,
            type=self.kind,
            metavar=None if self.choices else self.metavar,
            choices=self.choices,
            required=self.required,
            help=self.help + shown,
        )


GRACE = Flag(
    "grace",
    "time between TERM and KILL: what a ps may use to outlast its workers",
    *(10.0, POSITIVE, "SECONDS"),
)
THREADS = Flag(
    "threads",
    "threads an operation may use; 0: this host's cores, shared with the cluster's other tasks "
    "on it",
    *(0, NATURAL),
)
DATA = Flag(
    "data",
    "IDX or TFRecord files (default: embedded digits)",
    *(None, str, "DIR"),
    also=("data-dir", "data-path", "input-data"),
)
STEPS_ALSO = ("training-steps", "train-steps", "max-steps", "num-steps")
LOGDIR_ALSO = ("train-dir", "log-dir", "model-dir", "checkpoint-dir", "output-dir")
RESUME = Flag(
    "resume", "also take this run's checkpoint (default: TFMUX_RESUME)", *(None, str, "RUN")
)
ROLE = (
    Flag("job-name", "this task's job: ps, worker …", None, str, "JOB"),
    Flag("task-index", "this task's index", None, _index, also=("task-id",)),
    Flag("ps-hosts", "the ps tasks' addresses", None, str, "HOST:PORT,…"),
    Flag("worker-hosts", "the worker tasks' addresses", None, str, "HOST:PORT,…"),
    Flag("chief-hosts", "the chief's address", None, str, "HOST:PORT"),
)

GROUPS: dict[str, tuple[str, tuple[Flag, ...]]] = {
    "role": (
        "role (default: TF_CONFIG)",
        (
            *ROLE,
            GRACE,
            THREADS,
            Flag(
                "reconnect-secs",
                "how long a worker waits for a lost ps",
                *(60.0, POSITIVE, "SECONDS"),
            ),
            Flag(
                "stay",
                "a ps stays when all workers are done (as it does under tfmux, which ends it)",
                switch=True,
            ),
        ),
    ),
    "data": (
        "data",
        (DATA, Flag("batch", "images a step", 100, COUNT, also=("batch-size",))),
    ),
    "training": (
        "training",
        (
            Flag("steps", "global steps to train for", 2000, COUNT, also=STEPS_ALSO),
            Flag(
                "learning-rate",
                "its start value (default: 0.2; 0.02 for a cnn)",
                *(None, POSITIVE, "RATE"),
                also=("lr", "initial-learning-rate", "learning-rate-base"),
            ),
            Flag(
                "learning-rate-decay",
                "factor of the learning rate an epoch",
                *(0.99, POSITIVE, "FACTOR"),
                also=("decay",),
            ),
            Flag(
                "l2",
                "L2 regularisation",
                *(0.0001, NOT_NEGATIVE, "WEIGHT"),
                also=("weight-decay", "regularization-rate"),
            ),
            Flag(
                "average-decay",
                "of the weights' moving average, per global step",
                *(0.99, FRACTION, "DECAY"),
                also=("moving-average-decay",),
            ),
            Flag("seed", "of initial weights and shuffling", 1, int),
            Flag("log-every", "local steps a line", 100, COUNT, also=("log-interval", "log-steps")),
        ),
    ),
    "devices": (
        "devices",
        (
            Flag(
                "devices",
                "GPUs of a task, or logical CPU devices where it has fewer GPUs; one batch each",
                *(1, COUNT),
                also=("num-gpus", "num-devices", "n-gpus"),
            ),
        ),
    ),
    "calls": (
        "calls of the session",
        (
            Flag(
                "steps-per-call",
                "steps that one call runs, each with its own fetch and push; 1: as a classic loop",
                *(10, A_CALL),
            ),
            Flag(
                "wire",
                "how weights and gradients travel; bfloat16 halves them and rounds to 3 digits",
                "float32",
                choices=("float32", "bfloat16"),
            ),
        ),
    ),
    "downpour": (
        "Downpour SGD",
        (
            Flag("fetch-every", "local steps between two fetches of all weights", 1, COUNT, "K"),
            Flag("push-every", "local steps between two pushes of all changes", 1, COUNT, "K"),
        ),
    ),
    "delay": (
        "a slow worker, for the show",
        (
            Flag("slow-worker", "index of a worker that is slowed down", None, _index),
            Flag("slow-secs", "how long it sleeps at each step", 0.05, POSITIVE, "SECONDS"),
        ),
    ),
    "sync": (
        "synchronous updates",
        (
            Flag(
                "replicas-to-aggregate",
                "gradients that an update waits for; fewer than workers: the slowest are backups "
                "(default: all)",
                *(None, COUNT),
            ),
            Flag(
                "log-batches",
                "the chief appends which worker's which batches each update averaged",
                *(None, str, "FILE"),
            ),
        ),
    ),
    "towers": (
        "towers",
        (
            Flag(
                "model",
                "which network; cnn-tutorial has 32 and 64 maps and 1024 hidden units",
                "mlp",
                choices=("mlp", "cnn", "cnn-tutorial"),
            ),
            Flag(
                "update",
                "average the towers' gradients, or apply each tower's as they come",
                "sync",
                choices=("sync", "async"),
            ),
            Flag("epochs", "instead of --steps", None, POSITIVE, also=("num-epochs",)),
            Flag("momentum", "Nesterov momentum of a cnn", 0.9, FRACTION, "M"),
            THREADS,
            GRACE,
        ),
    ),
    "following": (
        "checkpoints to follow",
        (
            Flag(
                "logdir",
                "where the chief saves",
                *(None, str, "DIR"),
                also=LOGDIR_ALSO,
                required=True,
            ),
            Flag("poll-secs", "time between two looks", 0.5, POSITIVE, "SECONDS"),
            Flag(
                "steps",
                "leave after a checkpoint of at least this global step (default: on TERM)",
                *(None, COUNT),
            ),
            RESUME,
            GRACE,
        ),
    ),
    "converting": (
        "conversion",
        (
            DATA,
            Flag("to", "where to write; made if missing", None, str, "DIR", required=True),
            Flag("format", "what to write", "tfrecord", choices=("tfrecord", "idx")),
            Flag("shards", "TFRecord files a split", 4, COUNT, also=("num-shards",)),
        ),
    ),
    "logdir": (
        "checkpoints and summaries (the chief's disk)",
        (
            Flag(
                "logdir",
                "where they go; without it nothing is kept",
                *(None, str, "DIR"),
                also=LOGDIR_ALSO,
            ),
            Flag(
                "save-secs",
                "time between checkpoints",
                *(30.0, POSITIVE, "SECONDS"),
                also=("save-interval-secs",),
            ),
            RESUME,
        ),
    ),
    "service": (
        "tf.data service",
        (
            Flag(
                "part",
                "what this task is",
                required=True,
                choices=("dispatcher", "worker", "client"),
            ),
            Flag("dispatcher", "where the dispatcher is", None, str, "HOST:PORT", required=True),
            Flag("address", "where this server listens", None, str, "HOST:PORT"),
            GRACE,
        ),
    ),
    "classic": (
        "as the tutorials have them",
        (
            *ROLE,
            DATA,
            Flag("steps", "global steps to train for", 2000, COUNT, also=STEPS_ALSO),
            Flag("sync", "SyncReplicasOptimizer instead of asynchronous updates", switch=True),
            Flag(
                "logdir",
                "where the chief saves",
                *(None, str, "DIR"),
                also=LOGDIR_ALSO,
            ),
        ),
    ),
}


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
    parser = _Parser(
        prog=f"python -m trainer {mode.name}",
        description=mode.summary[0].upper() + mode.summary[1:] + ".",
        allow_abbrev=False,
    )
    for title, flags in map(GROUPS.__getitem__, mode.flags):
        group = parser.add_argument_group(title)
        for flag in flags:
            flag.add(group, mode.defaults.get(flag.name, flag.default))
    options, unknown = parser.parse_known_args(_hyphens(rest), namespace=Options())
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
        raise UsageError(f"{flag!r} belongs to no flag")
    others = [
        name
        for name, other in MODES.items()
        if flag in _names(other.flags) and not name.startswith(TOUR)
    ]
    if others:
        raise UsageError(f"{mode.name} has no {flag}; it belongs to {', '.join(others)}")
    raise UsageError(f"unknown flag {flag}{_nearest(flag, _names(mode.flags))}")


def _names(groups: Iterable[str]) -> list[str]:
    flags = [flag for group in groups for flag in GROUPS[group][1]]
    return [f"--{name}" for flag in flags for name in (flag.name, *flag.also)]


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


def _nearest(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(word.replace("_", "-"), names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(names)}" if names else "; this mode has no flags"
