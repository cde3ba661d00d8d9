"""Types of the values in a cluster file.

What pydantic can check it checks: types, bounds, words; `problems` has its errors in the words of
people who write cluster files. Rules of our own are here, with the JSON Schema for other programs.
TOML has types of its own, so nothing is converted silently, except whole numbers in `env`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ..frozen import frozen
from .addresses import (
    AddressError,
    AddressPart,
    SshDestination,
    TaskAddress,
    parse_address,
    parse_jump,
    parse_user,
)
from .patterns import compile_pattern, group_names, parse_ignore_pattern
from .readiness import After, Auto, LogMatches, PortListens, ProcessStarted, Readiness, ready_value

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
LONGEST_NAME = 64
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_SWITCHES = ("TFMUX_STACKS",)
"""Variables of ours that people may set."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
COMMAND = "{command}"
"""In a word of `via`: the whole command, quoted for a shell."""
TEXT_NEEDED = 'write text in quotes, such as "…"'
_GPU_NAME = re.compile(r"\d{1,4}|(?:GPU|MIG)-[A-Za-z0-9/-]{1,80}")
_MOST_GPUS = 1024
_LARGEST = 2**53
_TEN_YEARS = 315_360_000.0
_FILLED = {"type": "string", "minLength": 1}
REGEX = {**_FILLED, "format": "regex"}


@frozen
class Key:
    """Documentation of a key, as part of its field's type: the source of the reference, the JSON
    Schema and the editor's fields (see `reference`).

    Both texts are Markdown. The first sentence of `about` is all that the editor shows;
    `default` says what holds without the key, where the field's own default does not.
    """

    about: str
    default: str = ""


@dataclass(frozen=True, eq=False)
class ValueRule:
    """Rule of a value: `check` validates it here, `schema` (JSON Schema) in other programs."""

    check: Callable[[Any], Any]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, core: object, handler: object) -> dict[str, Any]:
        return dict(self.schema)  # pydantic adds the default of a field to it


def wrong(message: str, part: AddressPart | None = None) -> PydanticCustomError:
    """Makes an error whose text is `message`; `part` is the half of an address that is wrong."""
    return PydanticCustomError("cluster_file", "{message}", {"message": message, "part": part})


def nearest_word(word: str, known: Iterable[str]) -> str:
    """Finds the nearest of `known`; empty when none is near."""
    matches = difflib.get_close_matches(word[:200].lower(), list(known), n=1, cutoff=0.5)
    return matches[0] if matches else ""


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Writes `did you mean "x"?` for the nearest of `known`, else `otherwise`."""
    found = nearest_word(word, known)
    return f'did you mean "{found}"?' if found else otherwise


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise wrong("a NUL character is not allowed")
    return value


def text(value: Any) -> str:
    """Validates a string that can be an argument of a process."""
    if not isinstance(value, str):
        raise wrong(TEXT_NEEDED)
    return _no_nul(value)


def _filled(value: str) -> str:
    if not value.strip():
        raise wrong("it is empty: write a value, or remove the key")
    return value


def _words(value: Any) -> str:
    return _filled(text(value))


def _parsed(parse: Callable[[str], Any], kind: type = str) -> ValueRule:
    def validate(value: Any) -> Any:
        if kind is not str and isinstance(value, kind):
            return value
        try:
            return parse(text(value))
        except AddressError as error:
            raise wrong(str(error), error.part) from None

    return ValueRule(validate, _FILLED)


def _program(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value[0].strip():
        raise wrong("the first argument is empty: it must be the program")
    return value


def _order(value: Any) -> Any:
    form = 'write a list of stages, each a list: [["ps"], ["worker:0"], ["worker"]]'
    if not isinstance(value, list | tuple):
        raise wrong(form)
    if any(isinstance(stage, str) for stage in value):
        raise wrong(f"{form}: each stage needs brackets of its own")
    return tuple(value)


def _via(value: tuple[str, ...]) -> tuple[str, ...]:
    program = _program(value)[0]
    if "/" in program and not program.startswith(("/", "~/")):
        raise wrong('write the program as an absolute path, "~/…", or only its name')
    if program.rpartition("/")[2] == "ssh" and not any(COMMAND in word for word in value):
        raise wrong(
            "ssh gives its arguments to a shell, which needs them quoted: end with "
            f'"{COMMAND}", such as ["ssh", "login", "podman exec -i tf1 {COMMAND}"]'
        )
    return value


def _argument(value: str) -> str:
    if _CONTROL.search(value):
        raise wrong("control characters, such as line breaks, are not allowed: remove them")
    return value


def _env_name(value: Any) -> str:
    name = _words(value)
    if not _ENV_NAME.fullmatch(name):
        raise wrong(
            "the name of a variable must have only letters, digits and '_', and no digit first"
        )
    if name.startswith("TFMUX_") and name not in _SWITCHES:
        raise wrong("names that begin with TFMUX_ are reserved: use another name")
    return name


def _env_value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        shown = f'"{str(value).lower()}"' if isinstance(value, bool | float) else 'such as "1"'
        raise wrong(f"the value of a variable must be text: write it in quotes, {shown}")
    return text(value)


def _gpus(value: Any) -> int | tuple[str, ...]:
    if isinstance(value, str):
        names = tuple(filter(None, (name.strip() for name in value.split(","))))
        if len(names) == 1 and names[0].isdecimal() and "," not in value:
            number = names[0]
            raise wrong(
                f"write a whole number without quotes, {number}, for that many GPUs, or "
                f'"{number}," for the GPU with this number'
            )
        if not names or not all(map(_GPU_NAME.fullmatch, names)):
            raise wrong(
                'write a whole number, or GPUs such as "0,2", by number or by the ids that '
                "nvidia-smi -L prints (GPU-…, MIG-…)"
            )
        if len(set(names)) < len(names):
            raise wrong("a GPU is named twice")
        return names
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong('write a whole number, without quotes or a unit, or GPUs such as "0,2"')
    if value < 0:
        raise wrong("write a number from 0 on")
    if value > _MOST_GPUS:
        raise wrong(f"write a number up to {_MOST_GPUS}")
    return value


def gpu_count(gpus: int | tuple[str, ...] | None) -> int | None:
    """The number of GPUs that a key asks for, by their number or by their names."""
    return len(gpus) if isinstance(gpus, tuple) else gpus


def cluster_name(value: Any) -> str:
    """Validates a cluster's name: it becomes part of run ids and of file names."""
    name = _words(value)
    if len(name) > LONGEST_NAME:
        raise wrong(f"write a name of at most {LONGEST_NAME} characters")
    if not _NAME.fullmatch(name):
        raise wrong("write a name of letters, digits, '.', '_' and '-', a letter or digit first")
    return name


def name_problem(name: str) -> str:
    """Says what is wrong with a cluster's name; empty if nothing is."""
    if not name.strip():
        return "it is empty: write a name, such as mnist"
    try:
        cluster_name(name)
    except PydanticCustomError as error:
        return error.message()
    return ""


def pattern(value: Any) -> str:
    """Validates a regular expression over log bytes."""
    _expression(value)
    return text(value)


def _expression(value: Any) -> Any:
    source = _words(value)
    try:
        return compile_pattern(source)
    except ValueError as error:
        raise wrong(str(error)) from None


def _ignore_pattern(value: Any) -> str:
    words = _words(value)
    try:
        parse_ignore_pattern(words)
    except ValueError:
        raise wrong('not a pattern of a .gitignore: write such as "*.ckpt" or "raw/"') from None
    return words


def _metrics(value: Any) -> str:
    if "step" not in group_names(_expression(value)):
        raise wrong(r"the pattern has no group named step: write such as 'iter (?P<step>\d+)'")
    return text(value)


def _python(value: Any) -> str:
    python = _words(value)
    if "/" in python and not python.startswith(("/", "~/")):
        raise wrong('write an absolute path, "~/…", or only the name, such as "python3"')
    if python.startswith(("-", "~")) and not python.startswith("~/"):
        raise wrong('write the interpreter\'s path, such as "/usr/bin/python3"')
    return python


def _directory(value: Any) -> str:
    path = _words(value)
    if path != "~" and not path.startswith(("/", "~/")):
        hint = "; no shell reads it" if "$" in path or path.startswith("~") else ""
        raise wrong(f'write the whole path on the hosts, such as "~/proj" or "/nfs/proj"{hint}')
    return path


def _warm(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        raise wrong('write true, false or a list of modules, such as ["torch"]')
    for name in value:
        if not isinstance(name, str) or not _MODULE.fullmatch(name):
            raise wrong('write the names of modules in quotes, such as ["torch", "numpy.linalg"]')
    return tuple(value)


def _list_of(what: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "array", "items": {"type": "string", "description": what}, "minItems": 1}
    )


_AS_TEXT = PlainSerializer(str, return_type=str)
Name = Annotated[
    str,
    ValueRule(
        cluster_name,
        {"type": "string", "pattern": f"^{_NAME.pattern}$", "maxLength": LONGEST_NAME},
    ),
]
Text = Annotated[str, AfterValidator(_no_nul)]
Words = Annotated[Text, AfterValidator(_filled), WithJsonSchema(_FILLED)]
Directory = Annotated[
    str, ValueRule(_directory, {"type": "string", "pattern": "^(/|~/|~$)", "minLength": 1})
]
Flag = StrictBool
WordList = tuple[Words, ...]
IgnorePatterns = Annotated[
    tuple[Annotated[str, ValueRule(_ignore_pattern, _FILLED)], ...], Field(max_length=10_000)
]
Command = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    AfterValidator(_program),
    _list_of("program, then arguments"),
]
Via = Annotated[
    tuple[Annotated[Text, AfterValidator(_argument)], ...],
    Field(min_length=1),
    AfterValidator(_via),
    _list_of("program, then arguments"),
]
Tasks = Annotated[
    tuple[Annotated[TaskAddress, _parsed(TaskAddress.parse, TaskAddress), _AS_TEXT], ...],
    Field(min_length=1),
    _list_of("host:port"),
]
Destination = Annotated[SshDestination, _parsed(SshDestination.parse, SshDestination), _AS_TEXT]
Jump = Annotated[str, _parsed(parse_jump)]
User = Annotated[str, _parsed(parse_user)]
Address = Annotated[str, _parsed(parse_address)]
Python = Annotated[str, ValueRule(_python, _FILLED)]
EnvName = Annotated[str, ValueRule(_env_name, _FILLED)]
EnvValue = Annotated[str, ValueRule(_env_value, {"type": ["string", "integer"]})]
Env = dict[EnvName, EnvValue]
EnvNames = tuple[EnvName, ...]
Order = Annotated[tuple[WordList, ...], BeforeValidator(_order)]
Warm = Annotated[
    bool | tuple[str, ...],
    ValueRule(
        _warm,
        {
            "oneOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"type": "string", "pattern": f"^{_MODULE.pattern}$"}},
            ]
        },
    ),
]
MetricsPattern = Annotated[str, ValueRule(_metrics, REGEX)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=_TEN_YEARS, allow_inf_nan=False)]
Lease = Annotated[float, Field(strict=True, ge=1, le=_TEN_YEARS, allow_inf_nan=False)]
BACKGROUND_LEASE = 86400.0
"""Lease of a run in the background, unless its file says another one."""
MOST_HOSTS = 1024
"""Hosts of a run: one launcher process holds a connection to each."""
MOST_TASKS = 2048
"""Tasks of a run. Beyond it a scheduler is the better tool."""
GpuNumber = Annotated[int, Field(strict=True, ge=0, le=_MOST_GPUS)]
Gpus = Annotated[
    int | tuple[str, ...],
    ValueRule(
        _gpus,
        {
            "oneOf": [
                {"type": "integer", "minimum": 0, "maximum": _MOST_GPUS},
                {"type": "string", "pattern": r"^\s*(?:\d{1,4}\s*,|(?:GPU|MIG)-)"},
            ]
        },
    ),
]
Nodes = Annotated[int, Field(strict=True, ge=1, le=MOST_HOSTS)]
Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Steps = Annotated[int, Field(strict=True, ge=1, le=_LARGEST)]
Bytes = Annotated[int, Field(strict=True, ge=1, le=_LARGEST)]


_WORDS: dict[str, Readiness] = {
    "listening": PortListens(),
    "started": ProcessStarted(),
    "auto": Auto(),
}


def _seconds(value: Any) -> float:
    # "not … <=" refuses nan, too
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _TEN_YEARS:
        raise wrong("write a number of seconds from 0, without quotes or a unit")
    return float(value)


def _ready(value: Any) -> Readiness:
    if isinstance(value, PortListens | ProcessStarted | LogMatches | After | Auto):
        return value
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, dict) and set(value) == {"log"}:
        return LogMatches(pattern(value["log"]))
    if isinstance(value, dict) and set(value) == {"after"}:
        return After(_seconds(value["after"]))
    hint = nearest(value, _WORDS) if isinstance(value, str) else ""
    forms = 'write "listening", "started", "auto", { log = "regex" } or { after = 5.0 }'
    raise wrong(forms + (f"; {hint}" if hint else ""))


def _one_key(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


Ready = Annotated[
    Readiness,
    ValueRule(
        _ready,
        {
            "oneOf": [
                {"enum": list(_WORDS)},
                _one_key("log", REGEX),
                _one_key("after", {"type": "number", "minimum": 0}),
            ]
        },
    ),
    PlainSerializer(ready_value),
]


_TIME = re.compile(r"(?:\d{1,5}-\d{1,2}(?::\d{1,2}){0,2}|\d{1,7}(?::\d{1,2}){0,2})")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL)
_JOB_ID = re.compile(r"[1-9]\d{0,14}")
_PARTITION = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?:,[A-Za-z0-9_.][A-Za-z0-9_.-]*)*")
_OWN_OPTIONS = {
    "--array": "one run is one job",
    "--clusters": "for another cluster write a machine of it as login in [slurm]",
    "--error": "the agents report errors",
    "--export": "the environment is passed on without env_from",
    "--gpus-per-node": "write gpus in [slurm]",
    "--input": "tfmux sends the script",
    "--job-name": "the run is found by it",
    "--nodes": "write nodes in [slurm]",
    "--no-kill": "it is always given",
    "--no-requeue": "it is always given",
    "--ntasks": "each node has one agent",
    "--ntasks-per-node": "each node has one agent",
    "--output": "the agents report errors",
    "--parsable": "it is always given",
    "--partition": "write partition in [slurm]",
    "--requeue": "a run that has ended must not start again",
    "--time": "write time in [slurm]",
    "--wait": "tfmux waits anyway",
    "--wrap": "tfmux sends the script",
}


def _time(value: Any) -> str:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise wrong('write a time in quotes, as sbatch does: "30" (minutes), "04:00:00", "2-12"')
    return value


def _job_id(value: Any) -> str:
    if not isinstance(value, str) or not _JOB_ID.fullmatch(value):
        raise wrong('write the id of a job in quotes, such as "8123"')
    return value


def _option(value: Any) -> str:
    given = text(value)
    if not _OPTION.fullmatch(given) or not given.isprintable():
        raise wrong('write an option of sbatch as one text, such as "--account=proj42"')
    name = given.partition("=")[0]
    if why := _OWN_OPTIONS.get(name):
        raise wrong(f"{name} is tfmux's own ({why}): remove it")
    return given


def _partition(value: Any) -> str:
    if not _PARTITION.fullmatch(text(value)):
        raise wrong("write the partition's name; several with commas")
    return text(value)


TimeLimit = Annotated[
    str, ValueRule(_time, {"type": "string", "pattern": f"^(?:{_TIME.pattern})$"})
]
Partition = Annotated[
    str, ValueRule(_partition, {"type": "string", "pattern": f"^(?:{_PARTITION.pattern})$"})
]
JobId = Annotated[str, ValueRule(_job_id, {"type": "string", "pattern": f"^{_JOB_ID.pattern}$"})]
Option = Annotated[str, ValueRule(_option, {"type": "string", "pattern": "^--[a-z]"})]
Options = tuple[Option, ...]
