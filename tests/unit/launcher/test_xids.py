"""Xid errors in the kernel's log, as `/dev/kmsg` has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.agent.nvidia_smi import KernelLog

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def log(*records: str) -> str:
    return "".join(f"{record}\n" for record in records)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (f"3,1201,98765432,-;{LOST}", [79]),
        ("4,7,1,-;NVRM: Xid (PCI:0000:3b:00.0): 48, An uncorrectable double bit error", [48]),
        ("4,7,1,-;NVRM: Xid (PCI:00000000:3B:00): 94, pid='<unknown>', Contained", [94]),
        ("4,7,1,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained", [94]),  # MIG
        ("4,7,1,-;NVRM: Xid (0000:3b:00): 79, an older driver", [79]),
        ("4,7,1,-;NVRM: Xid (PCI:0000:3b:00): 45, Ch 00000001 caused by previous Xid 149", [45]),
        ("4,7,1,-;nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Fatal", []),
        (f"12,1201,98765432,-;{LOST}", []),  # a program has written it
        (f" CONTINUED={LOST}", []),
        ("3,1,1,-;NVRM: Xid (PCI:): 79", []),
        ("3,1,1,-;NVRM: Xid (PCI:0000:5e:00): 79, another GPU", []),
        ("3,1,1,-;NVRM: GPU at PCI:0000:3b:00: GPU-1, fallen off the bus", []),
        ("", []),
    ],
)
def test_xids_of_a_gpu(tmp_path: Path, record: str, found: list[int]) -> None:
    """By its place on the bus, in whatever way that is written, and by the kernel's word alone."""
    file = tmp_path / "kmsg"
    file.touch()
    kernel = KernelLog(str(file))
    assert kernel.read(["0000:3b:00"]) == {}
    file.write_text(log(record))
    assert kernel.read(["0000:3b:00"]) == ({"0000:3b:00": found} if found else {})


def test_only_what_comes_from_the_first_look_on_is_told(tmp_path: Path) -> None:
    """Given an old error, then it is no matter of this run; a new one is told from then on."""
    file = tmp_path / "kmsg"
    file.write_text(log(f"3,1,1,-;{LOST}"))
    kernel = KernelLog(str(file))
    assert kernel.read(["0000:3b:00"]) == {}
    with file.open("a") as added:
        added.write(log(f"3,2,1,-;{LOST.replace('79', '48')}", f"3,2,1,-;{LOST}"))
    assert kernel.read(["0000:3b:00"]) == {"0000:3b:00": [48, 79]}
    assert kernel.read(["0000:3b:00"]) == {"0000:3b:00": [48, 79]}


def test_a_log_that_may_not_be_read_tells_nothing(tmp_path: Path) -> None:
    """As for an ordinary user where `dmesg_restrict` is set, and in many containers."""
    assert KernelLog(str(tmp_path / "nothing")).read(["0000:3b:00"]) == {}
