"""How a run ended, in words: the outcome, the first failure, and the receipt."""

from __future__ import annotations

import time

from rich.text import Text

from launcher.run.snapshot import Failure, HostReceipt, Snapshot
from launcher.run.states import HostState, Outcome
from launcher.store.hints import Hint, hint_for
from tui.task_context import explain_hint, task_contexts
from tui.words import Mood, clock

Colours = dict[Mood, str]


def headline(snapshot: Snapshot, colours: Colours) -> Text:
    """The outcome, how long it took, which run; and the hosts that would not do."""
    text = Text()
    success = snapshot.outcome is Outcome.SUCCESS
    style = f"bold {colours[Mood.GOOD if success else Mood.BAD]}"
    text.append(f"{'✓' if success else '✗'} {snapshot.outcome or snapshot.state}", style)
    if snapshot.ended is not None:
        text.append(f"  after {clock(snapshot.ended - snapshot.started)}")
    text.append(f"  {snapshot.run_id}\n", "dim")
    for host in snapshot.hosts:
        if host.state is HostState.REFUSED:
            text.append(f"\n{host.name} ({host.destination}): ", style)
            text.append(f"{host.reason}\n")
    return text


def failure_text(snapshot: Snapshot, colours: Colours, tail: int) -> Text:
    """The first failure with its last lines and what they mean; empty where there is none."""
    text = Text()
    failure = snapshot.first_failure
    if failure is None:
        return text
    bad = f"bold {colours[Mood.BAD]}"
    text.append(f"first: {failure.task} @{failure.host} {failure.how}\n", bad)
    for line in failure.tail[-tail:]:
        text.append(f"  {line}\n")
    hint = failure_hint(failure)
    if hint is not None:
        words = explain_hint(hint, failure.task, task_contexts(snapshot))
        text.append(f"  ◂ {words}\n", f"italic {colours[Mood.BUSY]}")
    if failure.others:
        names = ", ".join(str(other) for other in failure.others)
        text.append(f"then, because of it or after it: {names}\n", "dim")
    return text


def paragraphs(*texts: Text) -> Text:
    """Those that say something, with an empty line between them."""
    return Text("\n").join(text for text in texts if text)


def failure_hint(failure: Failure) -> Hint | None:
    """What the failure's last lines mean, the newest that is known."""
    hints = (hint_for(line) for line in reversed(failure.tail))
    return next((hint for hint in hints if hint is not None), None)


def receipt_text(snapshot: Snapshot, colours: Colours) -> Text:
    """The receipt, one row a host, survivors below theirs."""
    receipt = snapshot.receipt
    if receipt is None:
        return Text("no receipt yet", "dim")
    text = Text()
    if receipt.clean:
        text.append("nothing is left alive", f"bold {colours[Mood.GOOD]}")
        text.append(": every host looked and confirmed it\n")
    else:
        text.append("not everything is confirmed dead\n", f"bold {colours[Mood.BAD]}")
    wide = max([len(host.host) for host in receipt.hosts] + [4])
    text.append(f"  {'host':<{wide}}  signalled  left\n", "dim")
    for host in receipt.hosts:
        text.append(f"  {host.host:<{wide}}  {host.signalled:>9}  ")
        word, style = _verdict(host, colours)
        text.append(f"{word}\n", style)
        for survivor in host.survivors:
            text.append(
                f"  {'':<{wide}}  pid {survivor.pid} ({survivor.state})  {survivor.command}\n"
            )
    return text


def _verdict(host: HostReceipt, colours: Colours) -> tuple[str, str]:
    bad = f"bold {colours[Mood.BAD]}"
    if host.confirmed and not host.survivors:
        return f"none   ✓ confirmed after {host.seconds:.1f} s", colours[Mood.GOOD]
    if host.confirmed:
        return f"{len(host.survivors)}      ✗ SURVIVED", bad
    if host.seconds:
        return "?      ✗ not confirmed; the notes say why", bad
    if host.unreachable_until is not None:
        when = time.strftime("%H:%M:%S", time.localtime(host.unreachable_until))
        return f"?      ✗ unreachable; it kills by itself when its lease ends, {when}", bad
    return "?      ✗ unreachable", bad
