"""Xid errors in the kernel's log."""

from __future__ import annotations

import pytest

from launcher.agent.kernel_log import XidErrors, last_lines, own_lines

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
HERE = "0000:3b:00"


class Log:
    """A kernel's log, to which a test adds lines."""

    def __init__(self, *lines: str) -> None:
        self.text = "".join(f"{line}\n" for line in lines)

    def add(self, *lines: str) -> None:
        self.text += "".join(f"{line}\n" for line in lines)

    def lines(self) -> list[str]:
        return own_lines(self.text.encode())


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (f"<3>[ 1201.1] {LOST}", [79]),
        (f"<3>{LOST}", [79]),  # a kernel that writes no times
        ("<4>[7.1] NVRM: Xid (PCI:0000:3b:00.0): 48, An uncorrectable double bit error", [48]),
        ("<4>[7.1] NVRM: Xid (PCI:00000000:3B:00): 94, pid='<unknown>', Contained", [94]),
        ("<4>[7.1] NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained", [94]),  # MIG
        ("<4>[7.1] NVRM: Xid (0000:3b:00): 79, an older driver", [79]),
        ("<4>[7.1] NVRM: Xid (PCI:0000:3b:00): 45, Ch 00000001 caused by previous Xid 149", [45]),
        ("<4>[7.1] nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Fatal", []),
        (f"<12>[1201.1] {LOST}", []),  # a program has written it
        (f"CONTINUED={LOST}", []),
        ("<3>[1.1] NVRM: Xid (PCI:): 79", []),
        ("<3>[1.1] NVRM: GPU at PCI:0000:3b:00: GPU-1, fallen off the bus", []),
        ("", []),
    ],
)
def test_xids_of_a_gpu(record: str, found: list[int]) -> None:
    """By its place on the bus, in whatever way that is written, and by the kernel's word alone."""
    log = Log("<6>[1.0] usb 1-1: new device", "<3>[1.0] NVRM: Xid (PCI:0000:5e:00): 79")
    errors = XidErrors(log.lines)
    assert errors.read() == {}
    log.add(record)
    assert errors.read() == ({HERE: found} if found else {})


def test_only_what_comes_from_the_first_look_on_is_told() -> None:
    """Given an old error, then it is no matter of this run; a new one is told from then on, once,
    also where the log has lost all that was there before."""
    log = Log(f"<3>[1.0] {LOST}")
    errors = XidErrors(log.lines)
    assert errors.read() == {}
    log.add(f"<3>[2.0] {LOST.replace('79', '48')}", f"<3>[2.0] {LOST}")
    assert errors.read() == errors.read() == {HERE: [48, 79]}
    log.text = f"<3>[9.0] {LOST.replace('79', '62')}\n"
    assert errors.read() == {HERE: [48, 79, 62]}


def test_a_log_that_was_empty_tells_what_comes() -> None:
    """Given no line at the first look, then each one that comes is new; a log that may not be read
    tells nothing."""
    log = Log()
    errors = XidErrors(log.lines)
    assert errors.read() == errors.read() == {}
    log.add(f"<3>[2.0] {LOST}")
    assert errors.read() == {HERE: [79]}


def test_the_log_of_this_machine_is_read_as_lines() -> None:
    """Whether or not it may be read."""
    assert all("\n" not in line for line in last_lines())
