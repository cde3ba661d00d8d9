"""GPUs of this host and the processes on them, as `nvidia-smi` and the kernel's log tell of them.

`nvidia-smi` takes from some hundredths of a second to seconds, and may hang: threads wait for it.
Being such a thread's child, it has no part in what the kernel says of the agent's children. One
program runs at a time, and on a host that has none nothing is started at all.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from typing import Iterable, Mapping, NamedTuple

from .asked import AskedProgram
from .kernel_log import XidErrors, bus_in
from .processes import Process, arguments, path_of, read_process
from .threads import start_thread
from .wire import MOST_GPU_PROCESSES, MOST_GPUS, TASK_NAME, Json

_THROTTLE, _THROTTLE_RENAMED = "clocks_throttle_reasons.active", "clocks_event_reasons.active"
_THROTTLE_BITS = (
    (0x04, "power-cap"),
    (0x60, "thermal"),
    (0x80, "power-brake"),
    (0x08, "hardware"),
)
_HARDWARE, _ITS_CAUSES = 0x08, 0xC0
"""Heat and the power brake set the bit of the hardware, too."""
_RENAMED = {_THROTTLE: _THROTTLE_RENAMED}
# The name stands last, since it may hold a comma.
_FIELDS = (
    *("index", "uuid", "pci.bus_id", "driver_version", "utilization.gpu", "memory.used"),
    *("memory.total", "temperature.gpu", "power.draw", "power.limit"),
    *(_THROTTLE, "ecc.errors.uncorrected.volatile.total", "compute_mode"),
    *("mig.mode.current", "name"),
)
_PROCESS_FIELDS = ("gpu_uuid", "pid", "used_gpu_memory", "process_name")
# Patterns, compiled where there are GPUs: an agent starts on each host of a launch.
_UNKNOWN_FIELD = r'Field "([\w.]{1,64})" is not a valid field'
_MOST_LINE = 1000
_MOST_TEXT = 200
_MOST_COMMAND = 300
_LIST_SECONDS = 15.0
_LATE_SECONDS = 15.0
"""Silence after which the last answer says nothing of the present."""
_PAUSE_SHARE = 5.0
"""The next question waits so many times as long as the last answer took."""
_MIB = 1 << 20
_LISTED_GPU = r"GPU (\d{1,4}): .*\(UUID: (GPU-[\w-]{1,80})\)"
_LISTED_INSTANCE = r"MIG (\S{1,40})\s.*Device\s+(\d{1,3}):.*\(UUID: (MIG-[\w/-]{1,80})\)"
# Rows of the table that nvidia-smi prints without a word: an instance of a GPU, by GPU, GPU
# instance, compute instance and device; and a process by the same, without the device.
_INSTANCE = r"\| +(\d{1,4}) +(\d{1,3}) +(\d{1,3}) +(\d{1,3}) +\| +(\d{1,9})MiB */ *(\d{1,9})MiB"
_ON_INSTANCE = r"\| +(\d{1,4}) +(\d{1,3}) +(\d{1,3}) +(\d{1,7}) +[CGM+]+ (.*) +(N/A|\d{1,9}MiB) +\|"
_CUDA = r"CUDA (?:UMD )?Version: *(\d{1,3}\.\d{1,3})"
_BROKEN = ("lost", "reset")
"""Words in the place of a figure that say of the GPU that it cannot be used."""
_ERRORS = ("error", "err!")
"""Words that say so in the places of both the load and the temperature: a sensor of power or of a
fan may fail for a moment, and a GPU within Windows Subsystem for Linux has no load."""
_NOT_LISTED = "nvidia-smi no longer lists it"
_NO_DEVICES = "No devices were found"


class GpuOwner(NamedTuple):
    """A process on a GPU; `start` names it with its pid, 0 where it is none of this host's."""

    pid: int
    start: int
    user: str
    command: str
    memory: int | None
    instance: str = ""
    """Id of the MIG instance on which it is."""


class _Look(NamedTuple):
    """An answer: GPUs as frames have them, the processes of each by its uuid, and what else was
    said."""

    gpus: list[Json]
    owners: dict[str, list[GpuOwner]]
    why: str


class NvidiaSmi:
    """The host's GPUs by the last answer."""

    def __init__(self) -> None:
        self._look = _Look([], {}, "")
        self._asking = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked_at = self._ask_at = 0.0
        self._closed = False
        self._asked: set[AskedProgram] = set()
        self._fields: tuple[str, ...] = _FIELDS
        self._buses: dict[str, Json] = {}
        """The last row of each GPU that was ever listed, by its place on the bus."""
        self._divided: set[tuple[str, str]] | None = None
        self._named: dict[tuple[str, str], tuple[str, str]] = {}
        """Profile and id of each MIG instance, by the number of its GPU and its own; asked for anew
        where others are `_divided`."""
        self._xids = XidErrors()

    def sample(self, members: Mapping[int, tuple[Process, str]]) -> tuple[list[Json], str]:
        """The GPUs by the last answer, their processes by task where they are `members`, and why
        they are not all, or not new. Asks anew unless an answer is still being waited for."""
        now = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            if now >= self._ask_at:
                self._asked_at = now
                with suppress(OSError):  # no thread can be started
                    self._thread = start_thread(self._ask_load, "gpus")
        elif now - self._asked_at > _LATE_SECONDS:
            waited = f"nvidia-smi has not answered for {now - self._asked_at:.0f} s"
            return [_without_figures(gpu) for gpu in self._look.gpus], waited
        return _with_processes(self._look, members), self._look.why

    def listed(self, members: Mapping[int, tuple[Process, str]]) -> Json:
        """The GPUs by an answer of now, their processes by task where they are `members`. `why` is
        what nvidia-smi says of those that it does not list, or of itself: of a GPU that is lost, or
        has a defect, it prints a sentence between the rows."""
        until = time.monotonic() + _LIST_SECONDS
        look = self._ask(until)
        if look is None:
            return {"gpus": [], "why": f"nvidia-smi did not answer in {_LIST_SECONDS:.0f} s"}
        self._look = look
        return {"gpus": _with_processes(look, members), "why": look.why}

    def inventory(self) -> Json:
        """The GPUs, the versions of their driver and of its CUDA, and the environment's choice."""
        said = {**self.listed({}), "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
        if said["gpus"]:
            said["driver"] = next((one["driver"] for one in self._buses.values()), "")
            cuda = re.search(_CUDA, (self._run([], time.monotonic() + _LIST_SECONDS) or (0, ""))[1])
            said["cuda"] = cuda.group(1) if cuda else ""
        return said

    def close(self) -> None:
        """Ends the programs that threads wait for; none is started from now on."""
        self._closed = True
        for asked in tuple(self._asked):
            asked.kill()

    # --- on threads -----------------------------------------------------------------------

    def _ask_load(self) -> None:
        began = time.monotonic()
        try:
            self._look = self._ask(None) or self._look
        except OSError as error:  # no descriptor or no process is left; or it is no program
            self._look = _Look([], {}, f"nvidia-smi cannot be run: {error.strerror or error}")
        took = time.monotonic() - began
        self._ask_at = began + took + _PAUSE_SHARE * took

    def _ask(self, until: float | None) -> _Look | None:
        """An answer; None where it did not come in time, or that of another thread."""
        wait = -1.0 if until is None else max(0.0, until - time.monotonic())
        if not self._asking.acquire(timeout=wait):
            return None
        try:
            return self._answer(until)
        finally:
            self._asking.release()

    def _answer(self, until: float | None) -> _Look | None:
        said = self._run([*_query("gpu", self._fields)], until)
        # Older drivers know fewer fields, newer ones have renamed some.
        while said is not None and said[0]:
            unknown = set(re.findall(_UNKNOWN_FIELD, said[1])) & set(self._fields)
            if not unknown:
                break
            known = (_RENAMED.get(name) if name in unknown else name for name in self._fields)
            self._fields = tuple(filter(None, known))
            said = self._run([*_query("gpu", self._fields)], until)
        if said is None:
            return None
        rows, sentences = _rows(said[1], self._fields, "index")
        why = sentences[0] if sentences else ""
        whole = bool(rows) or _NO_DEVICES in said[1]
        if said[0] and not whole and not why:
            why = f"nvidia-smi ends with status {said[0]} and prints nothing"
        elif self._buses and not whole and not why:
            why = "nvidia-smi is gone, or prints nothing"
        gpus = [gpu for gpu in map(_gpu, rows) if gpu is not None][:MOST_GPUS]
        found = self._run([*_query("compute-apps", _PROCESS_FIELDS)], until) if gpus else None
        owners = {} if found is None else _owners(_rows(found[1], _PROCESS_FIELDS, "gpu_uuid")[0])
        if any(gpu["mig"] for gpu in gpus):
            self._add_instances(gpus, owners, until)
        gpus += self._missing({gpu["bus"] for gpu in gpus}, sentences, whole)
        self._buses = {gpu["bus"]: gpu for gpu in gpus}
        if gpus:
            for bus, numbers in self._xids.read().items():
                if bus in self._buses:
                    self._buses[bus]["xids"] = numbers
        return _Look(sorted(gpus, key=lambda gpu: int(gpu["index"])), owners, why)

    def _missing(self, there: set[str], sentences: list[str], whole: bool) -> list[Json]:
        """GPUs that were listed once and are not now. They are lost where the list is `whole`, or
        where a sentence names them; nvidia-smi also fails as a whole, as after an update of the
        driver, while programs go on computing."""
        said = {_place(sentence): sentence for sentence in reversed(sentences)}
        missing = []
        for bus, gpu in self._buses.items():
            if bus not in there:
                problem = said.get(bus) or said.get(str(gpu["index"]))
                problem = problem or (_NOT_LISTED if whole else gpu["problem"])
                missing.append({**_without_figures(gpu), "problem": problem})
        return missing

    def _add_instances(
        self, gpus: list[Json], owners: dict[str, list[GpuOwner]], until: float | None
    ) -> None:
        """Adds the MIG instances of the GPUs, their memory, and the processes on them. Answers to
        queries have none of these: `nvidia-smi` alone prints them, and `-L` the ids."""
        table = _lines((self._run([], until) or (0, ""))[1])
        found = filter(None, (re.match(_INSTANCE, line) for line in table))
        rows = {(row[1], row[4]): row.groups() for row in found}
        if self._divided != rows.keys():
            self._divided = set(rows)
            self._named = _named_instances((self._run(["-L"], until) or (0, ""))[1])
        for gpu in gpus:
            number, ids = str(gpu["index"]), {}
            gpu["instances"] = []
            its = [(at[1], *each) for at, each in self._named.items() if at[0] == number]
            for device, name, uuid in its[:MOST_GPUS]:
                _, instance, compute, _, used, total = rows.get((number, device), ("",) * 6)
                ids[instance, compute] = uuid
                memory = {"memory_used": used, "memory_total": total}
                figures = {figure: _bytes(memory, figure) for figure in memory}
                gpu["instances"].append({"name": name, "uuid": uuid, **figures})
            on_it = list(_on_instances(table, number, ids))
            for _, _, uuid in its:  # as some drivers list them
                on_it += [one._replace(instance=uuid) for one in owners.pop(uuid, ())]
            pids = {owner.pid for owner in on_it}
            others = [each for each in owners.get(gpu["uuid"], ()) if each.pid not in pids]
            owners[gpu["uuid"]] = _by_memory([*on_it, *others])

    def _run(self, words: list[str], until: float | None) -> tuple[int, str] | None:
        """Status and output of `nvidia-smi`, both empty where there is none; None when it did not
        end in time."""
        program = "" if self._closed else path_of("nvidia-smi")
        if not program:
            return 0, ""
        asked = AskedProgram([program, *words], errors=False)
        self._asked.add(asked)
        try:
            if self._closed:
                asked.kill()
            said = asked.answer(until)
        finally:
            self._asked.discard(asked)
        return None if said is None else (said.status, said.out.decode(errors="replace"))


def _query(what: str, fields: Iterable[str]) -> tuple[str, str]:
    return f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"


def _lines(text: str) -> list[str]:
    """Lines that are no longer than patterns may take time for."""
    return [line.strip()[:_MOST_LINE] for line in text.splitlines()]


def _rows(text: str, fields: tuple[str, ...], first: str) -> tuple[list[dict[str, str]], list[str]]:
    """The lines that are rows of these fields, and the first ones that are none."""
    rows: list[dict[str, str]] = []
    sentences: list[str] = []
    for line in _lines(text):
        values = line.split(", ", len(fields) - 1)
        row = dict(zip(fields, values)) if len(values) == len(fields) else {}
        if row and (row[first].isdigit() or row[first].startswith(("GPU-", "MIG-"))):
            rows.append(row)
        elif line and not line.startswith(_NO_DEVICES) and len(sentences) < MOST_GPUS:
            sentences.append(line[:_MOST_TEXT])
    return rows, sentences


def _gpu(row: Mapping[str, str]) -> Json | None:
    """A GPU as frames have it; None where the row names no index and no bus."""
    index, bus = row.get("index", ""), bus_in(row.get("pci.bus_id", "")) or row.get("uuid", "")
    if not index.isdigit() or len(index) > 4 or not bus:
        return None
    load, power, limit = (
        _number(row, name) for name in ("utilization.gpu", "power.draw", "power.limit")
    )
    ecc = _number(row, "ecc.errors.uncorrected.volatile.total")
    temperature = _number(row, "temperature.gpu")
    return {
        "index": int(index),
        "name": row["name"][:_MOST_TEXT],
        "uuid": row.get("uuid", "")[:_MOST_TEXT],
        "bus": bus,
        "driver": row.get("driver_version", "")[:_MOST_TEXT],
        "utilisation": None if load is None else load / 100,
        "memory_used": _bytes(row, "memory.used"),
        "memory_total": _bytes(row, "memory.total"),
        "temperature": temperature,
        "power": power,
        "power_limit": limit,
        "throttled": _throttled(row.get(_THROTTLE) or row.get(_THROTTLE_RENAMED, "")),
        "ecc_errors": None if ecc is None else int(ecc),
        "mode": row.get("compute_mode", "")[:40],
        "mig": row.get("mig.mode.current") == "Enabled",
        "problem": _problem(row)[:_MOST_TEXT],
    }


def _throttled(bits: str) -> list[str]:
    """The reasons for which a GPU is slowed down; none where it does not tell."""
    told = int(bits, 16) if re.fullmatch("0x[0-9a-fA-F]{1,16}", bits) else 0
    told &= ~_HARDWARE if told & _ITS_CAUSES else ~0
    return [reason for bit, reason in _THROTTLE_BITS if told & bit]


def _problem(row: Mapping[str, str]) -> str:
    """What stands in the place of figures of a GPU that cannot be used; empty for any other."""

    def has(value: str, words: tuple[str, ...]) -> bool:
        return value.startswith(("[", "ERR")) and any(word in value.lower() for word in words)

    vital = [row.get(name, "") for name in ("utilization.gpu", "temperature.gpu")]
    broken = [value for value in row.values() if has(value, _BROKEN)]
    if not broken and all(has(value, _ERRORS) for value in vital):
        broken = vital
    return broken[0].strip("[] ") if broken else ""


def _without_figures(gpu: Json) -> Json:
    """What stays true of a GPU of which nothing new is heard."""
    names = ("index", "name", "uuid", "bus", "driver", "memory_total", "mode", "mig", "problem")
    return {name: gpu[name] for name in names}


def _number(row: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(row.get(name, ""))
    except ValueError:  # [N/A], [Not Supported], ERR!, …
        return None
    return value if 0 <= value < 1e12 else None


def _bytes(row: Mapping[str, str], name: str) -> int | None:
    value = _number(row, name)
    return None if value is None else int(value) * _MIB


def _place(sentence: str) -> str:
    """The GPU that a sentence names: by its place on the bus, or by its index."""
    named = re.search(r"\bGPU ?(\d{1,4})\b(?!:\d)", sentence)
    return bus_in(sentence) or (named[1] if named else "")


def _owners(rows: Iterable[Mapping[str, str]]) -> dict[str, list[GpuOwner]]:
    """The processes of each GPU, those with most memory first."""
    owners: dict[str, list[GpuOwner]] = {}
    for row in rows:
        pid = row["pid"]
        if pid.isdigit() and len(pid) < 8:
            memory = _bytes(row, "used_gpu_memory")
            owner = _owner(int(pid), row["process_name"], memory)
            if owner is not None:
                owners.setdefault(row["gpu_uuid"], []).append(owner)
    return {uuid: _by_memory(each) for uuid, each in owners.items()}


def _on_instances(
    table: Iterable[str], gpu: str, ids: Mapping[tuple[str, str], str]
) -> Iterable[GpuOwner]:
    """The processes on the MIG instances of a GPU, which have these `ids`."""
    for line in table:
        row = re.match(_ON_INSTANCE, line)
        if row and row[1] == gpu:
            owner = _owner(int(row[4]), row[5].strip(), _bytes({"": row[6][:-3]}, ""))
            if owner is not None:
                yield owner._replace(instance=ids.get((row[2], row[3]), ""))


def _by_memory(owners: Iterable[GpuOwner]) -> list[GpuOwner]:
    return sorted(owners, key=lambda owner: -(owner.memory or 0))


def _owner(pid: int, name: str, memory: int | None) -> GpuOwner | None:
    """A process on a GPU, None when it has ended; `start` 0 and no command: its pid names none
    here."""
    process = read_process(pid)
    if process is None:
        return GpuOwner(pid, 0, "", "", memory) if name.startswith("[") else None
    user = ""
    with suppress(OSError):
        user = _user(os.stat(f"/proc/{pid}").st_uid)
    command = arguments(pid) or name
    return GpuOwner(pid, process.start, user, command[:_MOST_COMMAND], memory)


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name[:_MOST_TEXT]
    except KeyError:
        return str(uid)


def _with_processes(look: _Look, members: Mapping[int, tuple[Process, str]]) -> list[Json]:
    return [{**gpu, **_processes(look.owners.get(gpu["uuid"], ()), members)} for gpu in look.gpus]


def _processes(owners: Iterable[GpuOwner], members: Mapping[int, tuple[Process, str]]) -> Json:
    """The processes of a GPU as frames have them, the run's first."""
    ours, others = [], []
    for owner in owners:
        member = members.get(owner.pid)
        said: Json = {"pid": owner.pid, "memory": owner.memory, "instance": owner.instance}
        if member is not None and member[0].start == owner.start and TASK_NAME.fullmatch(member[1]):
            ours.append({**said, "task": member[1], "command": owner.command})
        else:
            elsewhere = owner.start == 0
            others.append(
                {**said, "user": owner.user, "command": owner.command, "elsewhere": elsewhere}
            )
    listed = [*ours, *others]
    return {
        "processes": listed[:MOST_GPU_PROCESSES],
        "unlisted": max(0, len(listed) - MOST_GPU_PROCESSES),
    }


def _named_instances(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Profile and id of each MIG instance, from the output of `nvidia-smi -L`."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    gpu = ""
    for line in _lines(text):
        if head := re.match(_LISTED_GPU, line):
            gpu = head[1]
        elif (instance := re.match(_LISTED_INSTANCE, line)) and len(found) < MOST_GPUS * MOST_GPUS:
            found[gpu, instance[2]] = instance[1], instance[3]
    return found
