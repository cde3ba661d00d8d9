"""Last words of a task: the exception in its last lines, whether that is a victim's, and the peers
that it names.

A table of what frameworks say: gloo, NCCL and c10d, the coordination service of JAX and TensorFlow,
sessions, Horovod, MPI. Where one task is a launcher of several processes (torchrun, DeepSpeed's,
accelerate's), its report on them counts.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import re2

from ..frozen import frozen
from .grpc_status import HEADLINE, REPEATED, STACK, Meaning, Status, status_of


@frozen
class Words:
    """What a task's last lines say: an exception, and whether it is a victim's."""

    exception: str = ""
    """Its type and message, as they stand in one line."""
    message: str = ""
    """The line below that which says what is wrong, where that one does not."""
    raised_on: str = ""
    """The task, or the address, whose answer to a call it is: `ps:0`."""
    at: str = ""
    """The last file and line in the user's own code of its traceback."""
    in_library: bool = False
    """Installed code has raised it, or what has is not known."""
    victim: str = ""
    """The line by which a peer was missed."""
    peers: tuple[str, ...] = ()
    """Whom it missed: addresses, `rank N`, `job:index`."""
    unclear: bool = False
    """That a peer was missed is one of two meanings of the exception's status."""
    waits: bool = False
    """The last line of all says so: the task waits for a peer, and tells it again and again."""
    enqueued: int | None = None
    """Number of the last operation that NCCL's watchdog had seen it begin."""
    behind: tuple[int, ...] = ()
    """Ranks that a report of c10d calls behind in the collectives."""
    operation: str = ""
    """The operation in which NCCL's watchdog has ended it, with its number and size."""
    child: str = ""
    """The process of its own whose end it reports, such as `rank 3`."""
    child_status: int = 0
    """Status of that process, negative for a signal."""
    failed: tuple[tuple[int, int], ...] = ()
    """Local and global ranks that torchrun's report on its processes lists."""
    dismissed: int = 0
    """Processes that it has ended and does not list: they have left with 0."""
    begun: tuple[tuple[int, int], ...] = ()
    """Ranks of one process group, and the last operation that each had begun, where the watchdogs
    of several write into one log, as below torchrun."""
    speaker: str = ""
    """The process of `multiprocessing` that has raised the exception, as its headline says."""
    asks_for: tuple[int, ...] = ()
    """Ports on which it says that it listens, or cannot listen."""
    goes_on: bool = False
    """The end of that process ends no other one: whoever has started it may wait for others."""

    @property
    def sentence(self) -> str:
        """The exception in one sentence, with the task that has answered so."""
        text = self.exception
        if self.message:
            text = f"{text.partition(':')[0].rpartition('.')[2]}: {self.message}"
        return text

    @property
    def child_signal(self) -> str | None:
        """The signal that has ended that process, such as `KILL`."""
        numbers = {one.value: one.name for one in signal.Signals}
        return numbers.get(-self.child_status, "").removeprefix("SIG") or None


_MOST_LINES = 200
LONGEST = 300
"""Characters of a sentence that quotes a task."""
_MOST_FAREWELLS = 20
"""Lines behind an exception."""
_RANK_PREFIX = re2.compile(r"^\[(?:rank|Rank )\d+\]:? ?")
_EXCEPTION = re2.compile(
    r"^(?P<text>(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Warning|Fault)"
    r"(?::.*)?)$"
)
_OTHER_EXCEPTION = re2.compile(r"^(?P<text>(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:: .*)?)$")
_TRACEBACK = "Traceback (most recent call last)"
_NODE = re2.compile(r"^\s+\[\[")
"""Beginning of a line that names an operation, in a message of TensorFlow; its tab is shown as
blanks."""
_CHAIN = re2.compile(r"^(?:During handling of|The above exception was the direct cause of)")
_RECORD = re2.compile(r"^(?:\[?[EWIF]\d{4} |\[?\d{2,4}[-/:]\d{2}|\*\*\* )")
"""The beginning of a log's record, which is no part of an exception before it."""
_FILE = re2.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_INSTALLED = re2.compile(r"/(?:site-packages|dist-packages)/|/lib/python[0-9.]+/|^<")
_LEAVING = re2.compile(r"^(?:SystemExit|KeyboardInterrupt)|\bSignalException: ")
_LAUNCHER = re2.compile(
    r"\b(?:ChildFailedError|CalledProcessError|SignalException|Process(?:Raised|Exited)Exception)\b"
)
"""Exceptions of programs that have started others: torchrun, accelerate, `mp.spawn`."""
_SPEAKER = re2.compile(
    r"^-- Process (?P<local>\d{1,6}) terminated with the following error:"
    r"|^Process (?P<name>\w{0,40}Process-\d{1,6}(?::\d{1,6}){0,4}):$"
)
"""Lines before the traceback of a process of `mp.spawn`, and of `multiprocessing` itself."""
_CHILD = re2.compile(
    # torchrun, with a summary of the first failure at its end
    r"^\s*exitcode\s+: (?P<status>-?\d{1,3})\b|^\s*rank\s+: (?P<rank>\d{1,6}) \(local_rank: "
    r"|failed \(exitcode: (?P<failed>-?\d{1,3})\) local_rank: (?P<local>\d{1,6})"
    # DeepSpeed
    r"|launch\.py:\d+:.*exits with return code = (?P<code>-?\d{1,3})"
    # Open MPI
    r"|process rank (?P<mpi>\d{1,6}) with PID \d+ on node \S+ exited on signal (?P<signal>\d{1,2})"
    r"|^\s*Process name: \[\[\d+,\d+\],(?P<name>\d{1,6})\]|^\s*Exit code:\s+(?P<exit>\d{1,3})$"
    # mp.spawn
    r"|ProcessExitedException: process (?P<spawned>\d{1,6}) terminated with"
    r" (?:signal (?P<word>SIG\w{1,8})|exit code (?P<left>\d{1,3}))"
)
"""What they say of a process that has failed."""
_LISTED = re2.compile(
    r"^\s*rank\s+: (?P<rank>\d{1,6}) \(local_rank: (?P<local>\d{1,6})\)"
    r"|^\s*exitcode\s+: -?\d{1,3} \(pid: (?P<pid>\d{1,9})\)"
    r"|Sending process (?P<told>\d{1,9}) closing signal"
)
"""What torchrun says of all of its processes."""
_SILENT_ENDS = ("KILL", "SEGV", "BUS", "FPE", "ILL")
"""Signals that leave no exception, and are no victim's."""
_MOST_READINGS = 8
"""Tracebacks of processes among which a launcher's cause is looked for."""

_VICTIM = re2.compile(
    # gloo
    r"(?:Read error|Write error|[Cc]onnection closed by peer|[Cc]onnection (?:reset|refused))"
    r"[^\[\n]{0,20}\[[^\]]+\]:\d+"
    r"|Timed out waiting \d+ms for (?:recv|send)|Application timeout caused pair closure"
    r"|Gloo \w+ failed|Gloo connectFullMesh"
    # NCCL and c10d
    r"|Watchdog caught collective operation timeout|ncclRemoteError|NCCL communicator was aborted"
    r"|Detected mismatch between collectives|(?:failed to pass|reached) monitoredBarrier"
    r"|failed to recv, got 0 bytes|waiting for clients"
    r"|client socket has timed out|DistStoreError|DistNetworkError|Rendezvous\w{0,20}Error"
    r"|watchdog got stuck|Heartbeat monitor timed out|socketStartConnect: Connect to"
    # JAX's and TensorFlow's coordination service
    r"|heartbeat timeout|stopped sending heartbeats|tasks are unhealthy"
    r"|distributed service detected fatal errors|Barrier (?:failed|timed out)|barrier has failed"
    r"|Shutdown barrier|error from coordination service|disconnect from coordination service"
    # TensorFlow
    r"|Collective ops is aborted|peer failed: /job"
    r"|failed to connect to all addresses|Failed to connect to remote host|Socket closed|recvmsg:"
    r"|Step was cancelled"
    r"|(?:Unavailable|Aborted|Cancelled)Error: |Connection reset by peer|Broken ?[Pp]ipe"
    r"|ConnectionRe(?:set|fused)Error|EOFError|CreateSession still waiting"
    # the bundled trainer
    r"|waits for [\w-]{1,63}:\d{1,6} \(|^tf1: .{1,80} waits for the chief's variables$"
    # Horovod
    r"|Horovod has been shut down|waiting for remainder of ranks|HorovodInternalError"
    # MPI
    r"|MPI_ERR_PROC_FAILED|lost communication with"
    # Ray and Dask
    r"|(?:RayActor|Actor(?:Died|Unavailable)|WorkerCrashed|NodeDied|OwnerDied)Error|KilledWorker\b"
)
"""What is said by one who missed a peer."""
_PEERS = re2.compile(
    r"(?:Read error|Write error|[Cc]onnection closed by peer|[Cc]onnection (?:reset|refused))"
    r"[^\[\n]{0,20}\[(?P<address>[^\]]+)\]:(?P<port>\d+)"
    r"|Task (?P<rank>\d{1,6}) heartbeat timeout"
    r"|(?:reported from|peer failed:|remote target|response from worker:) "
    r"/job:(?P<job>[\w-]+)/(?:replica:\d+/)?task:(?P<index>\d{1,6})"
    r"|[Rr]anks? (?P<ranks>\d[\d, ]{0,200}) failed to pass monitoredBarrier"
    r"|errors while waiting for send/recv from rank (?P<barrier>\d{1,6})"
    r"|ipv[46]:(?:%5B)?(?P<target>[0-9a-fA-F.:]+?)(?:%5D)?:(?P<target_port>\d+)\b"
    r"|waits for (?P<waited>[\w-]{1,63}:\d{1,6}) \("
    r"|(?:remote peer |Connect to )(?P<host>[\w.:-]{1,255})<\d+>"
    r"|trying to connect to \((?P<master>[\w.:-]{1,255}), \d+\)"
)
_UNHEALTHY = re2.compile(
    r"^\s*(?:(?P<rank>\d{1,6})|/job:(?P<job>[\w-]+)/(?:replica:\d+/)?task:(?P<index>\d{1,6}))\s*$"
)
_BEHIND = re2.compile(
    # TORCH_NCCL_DESYNC_DEBUG=1
    r"To our best knowledge, ranks \[(?P<never>[\d, ]{1,200})\] are the lagging"
    r"|^\s*(?:- )?\[(?P<ranks>[\d, ]{1,200})\] (?:finished|joined but didn't finish)"
    r" collective #\d+"
    # torchfrtrace
    r"|^missing ranks: \{(?P<missing>[\d, ]{1,200})\}|Culprit rank (?P<culprit>\d{1,6});"
    # Horovod
    r"|\[missing ranks: ?(?P<stalled>[\d, ]{1,200})\]"
)
_STALLING = re2.compile(r"^(?P<rank>\d{1,6}): \[")
"""A line below Horovod's `Missing ranks:`."""
_FINGERPRINT = re2.compile(
    # TORCH_DISTRIBUTED_DEBUG=DETAIL
    r"Rank (?P<rank>\d{1,6}) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"SequenceNumber=(?P<number>\d{1,15}), OpType=(?P<type>\w{1,40})"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]{0,80})\])?"
)
_LISTENS = re2.compile(
    r"Started server with target: grpc://[^\s/]{1,255}:(?P<port>\d{1,5})\b"
    r"|Failed to add (?:any )?port.{0,200}'[^']{0,255}:(?P<refused>\d{1,5})'"
)
"""What a server of TensorFlow says of its own port."""
_ENQUEUED = re2.compile(r"last enqueued (?:NCCL )?work: (?P<number>\d{1,15})")
_BEGUN = re2.compile(
    r"\[PG (?:ID )?(?P<group>\d{1,6})[^\]]{0,80}\bRank (?P<rank>\d{1,6})\]"
    r".{0,200}last enqueued (?:NCCL )?work: (?P<number>\d{1,15})"
)
_WORK = re2.compile(
    r"WorkNCCL\(SeqNum=(?P<number>\d{1,15}), OpType=(?P<type>\w{1,40})"
    r"(?:, NumelIn=(?P<size>\d{1,15}))?"
)


def last_exception(tail: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The exception whose traceback is the last that a task has said, empty where there is none;
    and the few lines of libraries that follow."""
    lines = _last_lines(tail)
    begin = _last_traceback(lines)
    if begin is None or _TRACEBACK != lines[begin][: len(_TRACEBACK)]:
        return "", ()
    exception, end = _exception(lines, begin)
    rest = lines[end + 1 :]
    return (exception[:LONGEST], rest) if exception and len(rest) < _MOST_FAREWELLS else ("", ())


def misses_a_peer(tail: Sequence[str]) -> bool:
    """The last lines of a task say that another one is at fault."""
    return bool(read(tail).victim)


def read(tail: Sequence[str]) -> Words:
    """What the last lines of a task say."""
    lines = _last_lines(tail)
    words = replace(_read(lines), asks_for=_own_ports(lines))
    child, status = _child(lines)
    launched = _LAUNCHER.search(words.exception) is not None
    if not (launched or child or words.speaker):
        return words
    report = Words(child=child, child_status=status)
    if report.child_signal in _SILENT_ENDS:
        return report
    readings = list(_readings(lines, launched))
    raised = (one for one in readings if one.exception and not one.victim)
    own = (one for one in raised if not _LAUNCHER.search(one.exception))
    missed = (one for one in readings if one.victim)
    found = next(own, None) or next(missed, None) or (report if child else words)
    failed, dismissed = _listed_ranks(lines)
    return replace(found, failed=failed, dismissed=dismissed)


def _own_ports(lines: Sequence[str]) -> tuple[int, ...]:
    found = (match for line in lines if (match := _LISTENS.search(line)))
    return tuple(dict.fromkeys(int(one["port"] or one["refused"]) for one in found))


def _listed_ranks(lines: Sequence[str]) -> tuple[tuple[tuple[int, int], ...], int]:
    """The local and global ranks of torchrun's report, and how many processes it has ended that are
    not in it."""
    said = [match for line in lines if (match := _LISTED.search(line))]
    ranks = {int(one["local"]): int(one["rank"]) for one in said if one["local"]}
    ended = {one["told"] for one in said if one["told"]} - {one["pid"] for one in said}
    return tuple(sorted(ranks.items())), len(ended)


def _readings(lines: Sequence[str], launched: bool) -> Iterator[Words]:
    """What the processes of a launcher have said: by their last tracebacks, the newest first;
    `launched`: the last one of all is the launcher's own."""
    for number in range(_MOST_READINGS):
        if number or launched:
            begin = _last_traceback(lines)
            if begin is None:
                return
            lines = lines[:begin]
        yield _read(lines)


def _child(lines: Sequence[str]) -> tuple[str, int]:
    """The process whose end a launcher reports, and its status: the last one named, which
    torchrun calls the first that has failed."""
    name, status = "a process of its own", 0
    for line in lines:
        said = found.groupdict() if (found := _CHILD.search(line)) else {}
        if rank := said.get("rank") or said.get("mpi") or said.get("name"):
            name = f"rank {rank}"
        elif said.get("local"):
            name = f"local rank {said['local']}"
        elif number := said.get("spawned"):
            name = _spawned(number)
        codes = (said.get(one) for one in ("status", "failed", "code", "exit", "left"))
        if code := next(filter(None, codes), None):
            status = int(code)
        elif said.get("signal"):
            status = -int(said["signal"])
        elif word := said.get("word"):
            status = -getattr(signal.Signals, word, 0)
    return (name, status) if status else ("", 0)


def _last_traceback(lines: Sequence[str]) -> int | None:
    """The line in which the last traceback begins; one that another task has sent, in the message
    of an exception of TensorFlow, is none of its own."""
    begin = next((n for n in reversed(range(len(lines))) if _TRACEBACK in lines[n]), None)
    head = next((n for n in reversed(range(len(lines))) if HEADLINE.search(lines[n])), None)
    if begin is None or head is None or head > begin:
        return begin
    between = lines[head:begin]
    sent = any(_NODE.search(line) for line in lines[begin:])
    if not sent or any(_CHAIN.search(line) for line in between):
        return begin
    return next((n for n in reversed(range(head)) if _TRACEBACK in lines[n]), None)


def _exception(lines: Sequence[str], begin: int | None) -> tuple[str, int]:
    """The exception of the traceback that begins there, and the number of its line; without one
    the last line that has the form of an exception, TensorFlow's first."""
    exception, end = "", len(lines)
    if begin is None:
        head = next((n for n in reversed(range(end)) if HEADLINE.search(lines[n])), None)
        if head is not None:
            return lines[head], head
    for number in range(0 if begin is None else begin + 1, len(lines)):
        found = _EXCEPTION.search(lines[number])
        if found is None and begin is not None:
            found = _OTHER_EXCEPTION.search(lines[number])
        if found:
            exception, end = str(found["text"]), number
            if begin is not None:
                break
    return exception, end


def _read(lines: Sequence[str]) -> Words:
    """What the last lines of one process say."""
    begin = _last_traceback(lines)
    first = 0 if begin is None else begin + 1
    speaker = None if not begin else _SPEAKER.search(lines[begin - 1])
    name, goes_on = ("", False) if speaker is None else _spoken(speaker)
    exception, end = _exception(lines, begin)
    files = [match for line in lines[first:end] if (match := _FILE.search(line))]
    own = [match for match in files if not _INSTALLED.search(match["file"])]
    at = f"{own[-1]['file'].rpartition('/')[2]}:{own[-1]['line']}" if exception and own else ""
    in_library = not own or own[-1] is not files[-1]
    victim, peers = "", list[str]()
    # What follows the exception up to the next record of a log belongs to it, and what it was
    # raised for; without one all that was said last.
    said = [*range(max(0, len(lines) - 60), len(lines))]
    if exception:
        after = (n for n in range(end + 1, len(lines)) if _RECORD.search(lines[n]))
        whole = range(_chain_begins(lines, first), next(after, len(lines)))
        said = [n for n in whole if n >= end or not lines[n].startswith(" ")]
        said = _said_now(lines, said)
    status = status_of([lines[n] for n in said if n >= end]) if exception else Status()
    for number in said:
        line = lines[number]
        headline = HEADLINE.search(line)  # the code decides, and not its name
        if _VICTIM.search(line if headline is None else headline["text"]):
            victim = victim or line.strip()
            peers += _peers(line)
            if "unhealthy" in line or "timed out task names" in line.lower():
                peers += _listed(lines[number + 1 : number + 20])
    unclear = status.meaning is Meaning.UNCLEAR and not victim
    if unclear or status.meaning is Meaning.LOST:
        victim = victim or status.text or exception
        peers += [status.at] if status.at else []
    if not victim and _LEAVING.search(exception):
        exception = ""
    raised_on = "" if status.meaning is Meaning.LOST else status.at
    words = Words(
        exception[:LONGEST],
        status.text[:LONGEST],
        raised_on,
        at,
        in_library,
        speaker=name,
        goes_on=goes_on,
    )
    if exception and not victim:  # peers named before it had raised are no matter of its own
        return words
    for line in lines[-60:]:
        peers += _peers(line)
    enqueued, behind, operation = _collectives(lines)
    return replace(
        words,
        victim=victim[:LONGEST],
        peers=tuple(dict.fromkeys(peers)),
        unclear=unclear,
        waits=not exception and bool(lines) and _VICTIM.search(lines[-1]) is not None,
        enqueued=enqueued,
        behind=behind,
        operation=operation,
        begun=_begun(lines),
    )


def _said_now(lines: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """The lines of a message without those of an earlier log that TensorFlow has repeated behind
    it: what they tell may be over."""
    kept, repeats = list[int](), False
    for number in numbers:
        line = lines[number]
        ends = line.startswith(STACK) or _CHAIN.search(line) or _RECORD.search(line)
        repeats = line.startswith(REPEATED) or (repeats and not ends)
        if not repeats:
            kept.append(number)
    return kept


def _spawned(number: str) -> str:
    """A process of `mp.spawn`, which counts from 0 in the order of the start."""
    return f"process {number} (probably local rank {number})"


def _spoken(found: Any) -> tuple[str, bool]:
    """Which process a headline names, and whether others go on without it."""
    if local := found["local"]:
        return _spawned(local), False
    return found["name"], True


def _chain_begins(lines: Sequence[str], first: int) -> int:
    """The last line of a traceback's exception if it stands alone, else the first line of the
    tracebacks of those for which it was raised; `first` is the line behind its own headline."""
    while True:
        chain = next(
            (n for n in range(first - 2, max(-1, first - 5), -1) if _CHAIN.search(lines[n])), None
        )
        if chain is None:
            return first
        before = next((n for n in reversed(range(chain)) if _TRACEBACK in lines[n]), None)
        if before is None:
            return 0
        first = before + 1


def _collectives(lines: Sequence[str]) -> tuple[int | None, tuple[int, ...], str]:
    """What NCCL's watchdog and c10d say of the collectives: the last operation begun, ranks that
    are behind, and the operation that has not ended."""
    enqueued, operation, behind, listed = None, "", list[int](), False
    for line in lines:
        if (stalling := _STALLING.search(line) if listed else None) is not None:
            behind.append(int(stalling["rank"]))
        listed = stalling is not None or line.endswith("Missing ranks:")
        if (begun := _ENQUEUED.search(line)) is not None:
            enqueued = int(begun["number"])
        if (late := _BEHIND.search(line)) is not None:
            ranks = next(filter(None, late.groupdict().values()), "")
            behind += [int(number) for number in re.findall(r"\d{1,6}", ranks)][:100]
        if (mismatch := _FINGERPRINT.search(line)) is not None and not operation:
            shape = f" of shape [{mismatch['shape']}]" if mismatch["shape"] else ""
            operation = f"{mismatch['type']} number {mismatch['number']}{shape}"
        if (work := _WORK.search(line)) is not None:
            size = f" of {work['size']} elements" if work["size"] else ""
            operation = f"{work['type']} number {work['number']}{size}"
    return enqueued, tuple(behind), operation


def _begun(lines: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The ranks of the process group of which most have told their last operation, with that."""
    groups: dict[str, dict[int, int]] = {}
    for line in lines:
        if (told := _BEGUN.search(line)) is not None:
            groups.setdefault(told["group"], {})[int(told["rank"])] = int(told["number"])
    most = max(groups.values(), key=len, default={})
    return tuple(sorted(most.items())) if len(most) > 1 else ()


def _last_lines(tail: Sequence[str]) -> list[str]:
    """The last lines of a task, without the ranks that libraries put before them."""
    # RE2 knows no lone surrogates.
    clean = (line[:4096].encode(errors="replace").decode() for line in tail[-_MOST_LINES:])
    return [_RANK_PREFIX.sub("", line) for line in clean]


def _peers(line: str) -> list[str]:
    found: list[str] = []
    for match in _PEERS.finditer(line):
        found += _names(match.groupdict())
        if len(found) > 100:
            break
    return found


def _names(groups: dict[str, Any]) -> list[str]:
    found = []
    if groups.get("address"):
        found += [f"{groups['address']}:{groups['port']}", groups["address"]]
    if groups.get("target"):
        found += [f"{groups['target']}:{groups['target_port']}", groups["target"]]
    if rank := groups.get("rank") or groups.get("barrier"):
        found.append(f"rank {rank}")
    if groups.get("ranks"):
        found += [f"rank {number}" for number in re.findall(r"\d{1,6}", groups["ranks"])]
    found += [name for name in map(groups.get, ("host", "master", "waited")) if name]
    if groups.get("job"):
        # JAX calls its processes so, whatever their job is here.
        name = "rank " if groups["job"] == "jax_worker" else f"{groups['job']}:"
        found.append(f"{name}{groups['index']}")
    return found


def _listed(lines: Sequence[str]) -> list[str]:
    """The tasks that stand one a line below a sentence."""
    found = []
    for line in lines:
        match = _UNHEALTHY.search(line)
        if match is None:
            break
        found += _names(match.groupdict())
    return found
