"""End of a run in words, the same for the screens and for the terminal.

The screens use single paragraphs (`headline`, `failure_text`, `receipt_text`); `report` is all of
them for a terminal, a pipe or a log file. Text of hosts and tasks is made printable here. Rich is
left to the screens: who waits for the end of a command waits for no import of it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.ids import named_tasks
from launcher.printable import printable
from launcher.quantities import clock, counted, thousands
from launcher.run.cause import Verdict, grouped
from launcher.run.leaving import waits
from launcher.run.snapshot import AllocationView, Failure, HostReceipt, Receipt, Snapshot, TaskView
from launcher.run.states import Hang, HostState, Outcome, Purpose, RunPhase, TaskState
from tui.format import (
    UNCONFIRMED,
    StatusColor,
    figure,
    outcome_mark,
    status_color,
    time_of_day,
)

if TYPE_CHECKING:
    from rich.text import Text

    from tui.log.hints import Hint

NEEDED_LATE = (
    "tui.log.hints",
    "tui.log.remarks",
    "rich.text",
    "rich.cells",
    "launcher.agent.processes",
    "launcher.masking",
)
"""Modules that a report imports, and one that finds a launcher process which stands still."""
Colours = Mapping[StatusColor, str]
TERMINAL: Colours = {
    StatusColor.WAITING: "cyan",
    StatusColor.BUSY: "yellow",
    StatusColor.GOOD: "green",
    StatusColor.OFF: "dim",
    StatusColor.BAD: "red",
}
"""Colours of the terminal's own palette, for text that is printed outside of the app."""
_DAY = 86_400.0
_TAIL = 5
"""Most lines of the first failure that are printed."""
NOTHING_STARTED = "nothing was started"
_MOST_HOSTS = 16
"""Hosts that a text names at most, where it counts the others."""
_MOST_ENGINES = 3
_MOST_PIDS = 8
"""Processes that a command names at most."""
_MOST_EVIDENCE = 6
"""Sentences below a cause."""
_AFTERWORD = 2
"""Lines behind the last that points to a cause which may explain it; more are a library's."""
_MOST_TASKS = 32
"""Tasks from which on only those that went wrong are named."""


def told(text: str) -> str:
    """What a program, a host or a server has said, for people: on one line, printable, and without
    what looks like a secret."""
    from launcher.masking import mask  # whose table no end without trouble needs

    return mask(printable(text))


_CODES = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
"""Escape sequences of the words of a style."""


class StyledText:
    """Text in pieces, each with the words of its style as Rich knows them."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self._pieces = [(text, style)] if text else []

    def append(self, text: str, style: str = "") -> StyledText:
        """Adds a piece; returns this text."""
        self._pieces.append((text, style))
        return self

    def append_text(self, other: StyledText) -> StyledText:
        """Adds another text; returns this one."""
        self._pieces += other._pieces
        return self

    def __bool__(self) -> bool:
        return bool(self.plain)

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self._pieces)

    @property
    def rich(self) -> Text:
        """The text for a screen."""
        from rich.text import Text

        return Text.assemble(*self._pieces)

    def escaped(self, *, colours: bool) -> str:
        """The text with escape sequences, which do not reach over the end of a line; without
        `colours` those of its emphasis alone."""
        return "".join(_escaped(text, style, colours) for text, style in self._pieces)


def _escaped(text: str, style: str, colours: bool) -> str:
    codes = [_CODES[word] for word in style.split()]
    begin = ";".join(code for code in codes if colours or len(code) == 1)
    if not begin:
        return text
    lines = (f"\x1b[{begin}m{line}\x1b[0m" if line else "" for line in text.split("\n"))
    return "\n".join(lines)


def paragraphs(*texts: StyledText, apart: bool = True) -> StyledText:
    """The texts that are not empty; `apart`: with an empty line between them."""
    joined = StyledText()
    for text in filter(None, texts):
        joined.append("\n" if apart and joined else "").append_text(text)
    return joined


def outcome_text(snapshot: Snapshot, colours: Colours) -> tuple[str, str]:
    """Mark and word of the outcome, and their style."""
    clean = snapshot.receipt is None or snapshot.clean
    mark, color = outcome_mark(snapshot.outcome, clean=clean)
    return f"{mark} {snapshot.outcome or snapshot.state}", f"bold {colours[color]}"


def receipt_verdict(snapshot: Snapshot, colours: Colours) -> tuple[str, str]:
    """Whether anything of a run is left, by its receipt, and the style of that."""
    if not snapshot.clean:
        return UNCONFIRMED, f"bold {colours[StatusColor.BAD]}"
    hosts = len(snapshot.receipt.hosts) if snapshot.receipt is not None else 0
    text = f"no process is left, {counted(hosts, 'host')} confirmed" if hosts else NOTHING_STARTED
    return text, f"bold {colours[StatusColor.GOOD]}"


def headline(snapshot: Snapshot, colours: Colours) -> StyledText:
    """Outcome, duration and run; below, why the launcher failed, and the hosts that refused."""
    text = StyledText()
    text.append(*outcome_text(snapshot, colours))
    text.append(f" after {clock((snapshot.ended or time.time()) - snapshot.started)}")
    text.append(f"  {printable(snapshot.run_id)}\n", "dim")
    if snapshot.launcher_error:
        why = told(f"the launcher failed: {snapshot.launcher_error}")
        text.append(f"{why}\n", f"bold {colours[StatusColor.BAD]}")
    text.append_text(_taken_text(snapshot, colours))
    if snapshot.attempt_text:
        text.append(f"{printable(snapshot.attempt_text)}\n")
    return text.append_text(refusals_text(snapshot, colours))


def _taken_text(snapshot: Snapshot, colours: Colours) -> StyledText:
    """Which launcher elsewhere has taken the run over, and what it has said that for: nothing else
    is known here of what followed. Empty where none has."""
    text = StyledText()
    if not snapshot.taken_by:
        return text
    by, run = printable(snapshot.taken_by), printable(snapshot.run_id)
    text.append(f"another launcher ({by}) ", f"bold {colours[StatusColor.BAD]}")
    match snapshot.taken_for:
        case Purpose.KILL:
            text.append("has taken the run over to end it; what is left, its receipt says\n")
            return text
        case Purpose.ATTACH:
            text.append("has taken the run over to supervise it; how it ends is known there\n")
        case Purpose.UNKNOWN:
            text.append("has taken the run over, and has not said what for\n")
    if snapshot.outcome is Outcome.TAKEN_OVER:
        text.append(f"take it back with: tfmux attach {run}\n")
    return text


def refusals_text(snapshot: Snapshot, colours: Colours) -> StyledText:
    """Hosts that refused, and why the nodes of an engine could not be had; empty if none."""
    text = StyledText()
    bad = f"bold {colours[StatusColor.BAD]}"
    for host in snapshot.hosts:
        if host.state is HostState.REFUSED:
            where = f" ({host.destination})" if host.destination != host.name else ""
            text.append(f"{told(f'{host.name}{where}')}: ", bad)
            text.append(f"{told(host.reason)}\n")
    if snapshot.allocation is not None and snapshot.allocation.ended:
        text.append(f"{told(snapshot.allocation.ended)}\n", bad)
    return text


def queue_text(allocation: AllocationView, since: float, now: float) -> str:
    """`Slurm 8123 PENDING (Resources), expected 18:40, waited 0:12`."""
    text = f"{allocation.title} {allocation.state or 'requested'}"
    if allocation.reason:
        text += f" ({allocation.reason})"
    if allocation.expected is not None and allocation.expected > now:  # Slurm's may be old
        far = allocation.expected - now >= _DAY
        day = time.strftime("%Y-%m-%d ", time.localtime(allocation.expected)) if far else ""
        text += f", expected {day}{time_of_day(allocation.expected)[:5]}"
    return printable(f"{text}, waited {clock(now - since)}")


def queue_status(snapshot: Snapshot, now: float) -> str:
    """State of the request for nodes; empty if the run does not wait for any."""
    if snapshot.state is not RunPhase.QUEUED or snapshot.allocation is None:
        return ""
    return queue_text(snapshot.allocation, snapshot.waiting_since or now, now)


def tasks_text(snapshot: Snapshot) -> StyledText:
    """One line for each task that was started: its state, step and loss. Of many, those that went
    wrong come first, and the others are counted."""
    begun = [task for task in snapshot.tasks if task.attempt]
    shown, counts = begun, Counter[tuple[str, str]]()
    if len(begun) > _MOST_TASKS:
        bad = [task for task in begun if status_color(task) is StatusColor.BAD]
        shown = bad[:_MOST_TASKS]
        named = {task.id for task in shown}
        counts = Counter((t.id.job, t.exit_text) for t in begun if t.id not in named)
    lines = [f"{task.id} on {task.host}: {_task_state(task)}" for task in shown]
    lines += [f"{job}: {counted(count, 'task')} {end}" for (job, end), count in counts.items()]
    return StyledText("".join(f"  {told(line)}\n" for line in lines))


def _task_state(task: TaskView) -> str:
    words = [task.exit_text]
    if task.reason:
        words.append(f"({task.reason})")
    if task.step is not None:
        words.append(f"step {thousands(task.step)}")
    if task.loss is not None:
        words.append(f"loss {figure(task.loss)}")
    if task.attempt > 1:
        words.append(counted(task.attempt, "attempt"))
    return " ".join(words)


def failure_text(
    snapshot: Snapshot,
    colours: Colours,
    tail: int,
    *,
    brief: bool = False,
    lines: Sequence[str] | None = None,
    width: int = 0,
) -> StyledText:
    """The cause of a failure and what points to it, with at most `tail` last ones of the guilty
    task's `lines`, or of the first failure's where nobody is guilty; empty if there is no failure.
    `brief`: without what a small screen has no room for; last lines that are wider than `width`
    are cut there."""
    verdict, failure = snapshot.verdict, snapshot.first_failure
    text = cause_text(snapshot, colours, 0 if brief else _MOST_EVIDENCE)
    is_victim = failure is not None and verdict is not None and failure.task not in verdict.tasks
    said = lines or (failure.tail if failure is not None and not is_victim else ())
    # Why the run itself has ended the guilty task, such as that it never listened, names the
    # setting that repairs it.
    reasons = {task.id: task.reason for task in snapshot.tasks}
    ended = failure is not None and not is_victim and bool(reasons.get(failure.task))
    if brief and verdict is not None:
        if ended and failure is not None:
            text.append(f"{told(failure.how)}\n")
        return text.append_text(_last_lines(said, tail, verdict, width))
    if is_victim:
        text.append_text(_last_lines(said, tail, verdict, width))
    return text.append_text(
        _first_failure_text(snapshot, colours, tail, said, titled=verdict is None or ended)
    )


def up_to_evidence(lines: Sequence[str], verdict: Verdict | None) -> Sequence[str]:
    """Lines of a guilty task up to the last that points to it; all where none does, or where only
    a word or two of the program itself follow."""
    if verdict is None:
        return lines
    texts = [one.text for one in verdict.evidence if one.in_log and one.task in verdict.tasks]
    for end in range(len(lines), 0, -1):
        if any(text in lines[end - 1] for text in texts):
            return lines if len(lines) - end <= _AFTERWORD else lines[:end]
    return lines


def _last_lines(
    lines: Sequence[str], most: int, verdict: Verdict | None, width: int = 0
) -> StyledText:
    """The last lines of a log up to what points to its task, but for routine messages of libraries
    and for the marks that Python puts below a line of a traceback; none where there is only the one
    that the verdict quotes."""
    from tui.log.remarks import remark_source

    text = StyledText()
    telling = (line for line in up_to_evidence(lines, verdict) if line.strip(" ^~"))
    lines = [line for line in telling if remark_source(line.encode(errors="replace")) is None]
    if verdict is not None and len(lines) == 1 and lines[0].strip() in verdict.text:
        return text
    for line in lines[-most:] if most else ():
        shown = f"  | {told(line)}"
        text.append(f"{_cut(shown, width) if width else shown}\n")
    return text


def _cut(line: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _first_failure_text(
    snapshot: Snapshot,
    colours: Colours,
    tail: int,
    lines: Sequence[str] = (),
    *,
    titled: bool = True,
) -> StyledText:
    """First failure, what it means, and the last ones of its log's `lines` but for remarks. Not
    `titled` below a cause that names the same task."""
    text = StyledText()
    failure, verdict = snapshot.first_failure, snapshot.verdict
    if failure is None:
        return text
    if verdict is not None and failure.task not in verdict.tasks:
        # Its last lines are a victim's; what points to the guilty one stands above.
        title = f"first failure: {failure.task} on {failure.host}: {failure.how}"
        text.append(told(title) + "\n", "dim")
        return text
    from tui.log.hints import explain_hint, task_contexts  # many expressions, for failures alone

    title = f"first failure: {failure.task} on {failure.host}: {failure.how}"
    title += lead_text(snapshot, failure)
    if titled:
        text.append(told(title) + "\n", f"bold {colours[StatusColor.BAD]}")
    hang = snapshot.hang
    if hang is not None and hang.reason is not Hang.STALLED:
        where = f"{hang.text} (all stacks: {hang.file})"
        text.append(f"  ◂ {printable(where)}\n", f"italic {colours[StatusColor.BUSY]}")
    hint = failure_hint(snapshot, failure)
    if hint is not None:
        meaning = explain_hint(hint, failure.task, task_contexts(snapshot))
        text.append(f"  ◂ {printable(meaning)}\n", f"italic {colours[StatusColor.BUSY]}")
    text.append_text(_last_lines(lines or failure.tail, tail, verdict))
    if failure.others:
        names = ", ".join(str(other) for other in failure.others[:_MOST_TASKS])
        more = len(failure.others) - _MOST_TASKS + failure.unlisted
        names += f" and {thousands(more)} more" if more > 0 else ""
        text.append(f"  then: {printable(names)}\n", "dim")
    return text


def cause_text(snapshot: Snapshot, colours: Colours, evidence: int = _MOST_EVIDENCE) -> StyledText:
    """Which task is guilty of a failure, and why, and what else points to it; empty where it is not
    known."""
    text = StyledText()
    verdict = snapshot.verdict
    if verdict is None:
        return text
    text.append(f"cause: {told(verdict.text)}\n", f"bold {colours[StatusColor.BAD]}")
    others = [one for one in verdict.evidence if one.text not in verdict.text]
    for group in grouped(others)[:evidence]:
        names = named_tasks(dict.fromkeys(one.task for one in group))
        text.append(f"  · {told(f'{names}: {group[0].text}')}\n")
    return text


def lead_text(snapshot: Snapshot, failure: Failure) -> str:
    """`, 4.1 s before worker:0`: the next one that failed; empty if none."""
    tasks = {task.id: task for task in snapshot.tasks}
    later = next((tasks[other] for other in failure.others if other in tasks), None)
    if later is None or later.ended is None or later.ended <= failure.time:
        return ""
    return f", {later.ended - failure.time:.1f} s before {later.id}"


def failure_hint(snapshot: Snapshot, failure: Failure) -> Hint | None:
    """Meaning of the failure: of the newest of its last lines that is known, else of the signal
    that ended the task."""
    from tui.log.hints import hint_for, hint_for_signal

    hints = (hint_for(line) for line in reversed(failure.tail))
    known = next((hint for hint in hints if hint is not None), None)
    task = next((view for view in snapshot.tasks if view.id == failure.task), None)
    if known is not None or task is None or task.state is not TaskState.FAILED:
        return known
    if task.reason or task.out_of_memory:  # with a reason it was ended by the run itself
        return None
    return hint_for_signal(task.exit_signal)


def receipt_text(snapshot: Snapshot, colours: Colours) -> StyledText:
    """Receipt of a run and its allocation, or that there is none yet."""
    if snapshot.receipt is None:
        return StyledText("no receipt yet\n", "dim")
    text = _receipt_body(snapshot, snapshot.receipt, colours)
    if snapshot.allocation is not None and snapshot.allocation.released:
        text.append(f"{told(snapshot.allocation.released)}\n")
    return text


def _receipt_body(snapshot: Snapshot, receipt: Receipt, colours: Colours) -> StyledText:
    """Receipt: a line for each host that is not clean, its survivors below it, or that the engine
    alone has confirmed; the clean ones are one line."""
    text = StyledText()
    verdict, style = receipt_verdict(snapshot, colours)
    shown = [host for host in receipt.hosts if not _is_clean(host)]
    clean = [host for host in receipt.hosts if _is_clean(host)]
    agreed = sorted({host.engine for host in clean if host.engine})
    said = "".join(f"; {printable(engine)}" for engine in agreed[:_MOST_ENGINES])
    if snapshot.clean:
        text.append(f"{verdict}{said}\n", style)
    else:
        text.append(f"{verdict}; {_advice(snapshot.run_id, receipt)}\n", style)
    for host in shown:
        about, style = host_verdict(host, colours)
        text.append(f"{printable(host.host)}: ", "bold")
        text.append(f"{about}\n", style)
        for survivor in host.survivors:
            process = f"pid {survivor.pid} ({survivor.state}) {survivor.command}"
            text.append(f"{printable(host.host)}: {told(process)}\n")
        if host.unlisted:
            text.append(f"{printable(host.host)}: and {thousands(host.unlisted)} more\n")
    if clean and not snapshot.clean:
        others = counted(len(clean), "other host" if shown else "host")
        text.append(f"{others}: ", "bold")
        text.append(f"no process is left{said}\n", colours[StatusColor.GOOD])
    return text


def _is_clean(host: HostReceipt) -> bool:
    """Its agent has confirmed that no process is left."""
    return host.confirmed and not host.survivors and not host.by_engine


def _advice(run_id: str, receipt: Receipt) -> str:
    """The command that finishes an end which is not confirmed on every host."""
    doubts = [host for host in receipt.hosts if not host.confirmed]
    kill = f"tfmux kill {printable(run_id)}"
    if not doubts or not all(host.until_boot for host in doubts):
        return f"finish with: {kill}"
    names = ", ".join(printable(host.host) for host in doubts[:_MOST_HOSTS])
    forget = kill.replace("kill", "kill --forget", 1)
    return f"after a boot of {names}: {kill}; to remove it from the list: {forget}"


def _survivors_advice(host: HostReceipt) -> str:
    """What ends processes that a kill has not ended."""
    ids = [str(one.pid) for one in host.survivors if not one.state.startswith("D")]
    if not ids:
        return "state D: kill again later, or boot it"
    return f"as root there: kill -KILL {' '.join(ids[:_MOST_PIDS])}"


def host_verdict(host: HostReceipt, colours: Colours) -> tuple[str, str]:
    """What the receipt says of one host, and the style of that."""
    bad = f"bold {colours[StatusColor.BAD]}"
    said = f"; {printable(host.engine)}" if host.engine else ""
    if host.taken_by:
        by = printable(host.taken_by)
        return f"taken over by {by}, which ends the run there{said}", bad
    if host.by_engine:
        return f"none left, confirmed (no agent{said})", colours[StatusColor.GOOD]
    signalled = f"{counted(host.signalled, 'process', 'processes')} signalled"
    if host.survivors:
        why = f"; {told(host.doubt) if host.doubt else _survivors_advice(host)}"
        left = f"{thousands(host.left)} left after {host.seconds:.2f} s"
        return f"not confirmed: {signalled}, {left}{why}{said}", bad
    if host.confirmed:
        by = f" (agent{said})" if said else ""
        good = colours[StatusColor.GOOD]
        return f"{signalled}, none left, confirmed in {host.seconds:.2f} s{by}", good
    if host.doubt:
        until = " until it boots" if host.until_boot else ""
        return f"not confirmed{until}: {told(host.doubt)}{said}", bad
    if host.unreachable_until is not None and host.unreachable_until > time.time():
        when = time_of_day(host.unreachable_until)
        return f"unreachable; its agent ends the tasks at {when} at the latest{said}", bad
    return f"unreachable{said}", bad


def _ending_text(snapshot: Snapshot, colours: Colours, doubt: str) -> StyledText:
    """Results that are missing, and what became of the run otherwise."""
    text = StyledText()
    bad = colours[StatusColor.BAD]
    for sentence in snapshot.results_missing:
        text.append(told(sentence) + "\n", bad)
    text.append_text(results_text(snapshot))
    said = snapshot.receipt is not None and receipt_verdict(snapshot, colours)[0] == NOTHING_STARTED
    if snapshot.outcome is Outcome.PREFLIGHT and not said:
        text.append(f"{NOTHING_STARTED}\n")
    if snapshot.outcome is Outcome.DETACHED:
        goes_on = "the run continues"
        if doubt:
            goes_on = f"nobody knows whether the run continues: {told(doubt)}"
        way = f"come back with: tfmux attach {printable(snapshot.run_id)}"
        text.append(f"{goes_on}; {way}\n", bad if doubt else "")
        text.append("".join(f"{printable(line)}\n" for line in waits(snapshot)))
    return text


def result_lines(snapshot: Snapshot) -> list[str]:
    """A line for each host on which tasks have left files that stay there. Of many hosts, those
    with the most are named."""
    told = [one for one in snapshot.results_kept if one.told]
    kept = sorted(told, key=lambda one: -one.bytes)[:_MOST_HOSTS]
    lines = [one.text(snapshot.run_id) for one in kept]
    if more := len(told) - len(kept):
        lines.append(f"and on {counted(more, 'more host')}")
    return [printable(line) for line in lines]


def results_text(snapshot: Snapshot) -> StyledText:
    """Results as a text; empty if there are none."""
    return StyledText("".join(f"{line}\n" for line in result_lines(snapshot)))


def report(snapshot: Snapshot, folder: Path, *, detached: bool = False, doubt: str = "") -> str:
    """Text for stderr after a run, coloured if stderr is a terminal; `detached`: it goes on, or
    perhaps not, because of a `doubt`."""
    if detached:
        snapshot = replace(snapshot, outcome=Outcome.DETACHED, background=True)
    text = cause_text(snapshot, TERMINAL)
    text.append_text(headline(snapshot, TERMINAL))
    text.append_text(tasks_text(snapshot))
    text.append_text(_first_failure_text(snapshot, TERMINAL, _TAIL))
    released = snapshot.allocation is not None and snapshot.allocation.released
    unclear = not snapshot.clean or snapshot.outcome is Outcome.PREFLIGHT
    if snapshot.receipt is not None and (snapshot.receipt.hosts or released or unclear):
        text.append_text(receipt_text(snapshot, TERMINAL))
    text.append_text(_ending_text(snapshot, TERMINAL, doubt))
    text.append(f"logs: {printable(str(folder))}")
    return rendered(text, styled=sys.stderr.isatty())


def receipt_lines(snapshot: Snapshot) -> list[str]:
    """The receipt as plain lines; none where there is none yet."""
    if snapshot.receipt is None:
        return []
    text = _receipt_body(snapshot, snapshot.receipt, TERMINAL)
    return text.plain.rstrip("\n").split("\n")


def rendered(text: StyledText, *, styled: bool) -> str:
    """A text as a string, with escape sequences if `styled`; without colours where people want none
    (`NO_COLOR`)."""
    return text.escaped(colours=not os.environ.get("NO_COLOR")) if styled else text.plain
