"""Fault of one rank at one step, for programs of any framework: `FAULT=HOW RANK STEP`."""

import atexit
import ctypes
import os
import resource
import signal
import sys
import time

HOW, GUILTY, STEP = os.environ.get("FAULT", "none 0 0").split()
SECONDS_TO_LEAVE = 4.0


def next_batch() -> None:
    """Waits for data that never come."""
    time.sleep(1000)


def augment(step: int) -> None:
    """Finds data that it cannot use."""
    raise ValueError(f"bad sample in shard {step}")


def fill_memory() -> None:
    """Takes memory until there is no more."""
    pages = int(open("/proc/self/statm", encoding="ascii").read().split()[0])
    room = pages * resource.getpagesize() + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    held = []
    while True:
        held.append(bytearray(16 << 20))


def fill_group() -> None:
    """Takes more memory than the kernel lets this process have."""
    group = f"/sys/fs/cgroup/memory/guilty-{os.getpid()}"
    os.mkdir(group)
    for name, value in (("memory.limit_in_bytes", 128 << 20), ("cgroup.procs", os.getpid())):
        with open(f"{group}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))
    held = []
    while True:
        held.append(b"x" * (16 << 20))


def trouble(step: int, rank: int) -> None:
    """A batch of step `step`, and what goes wrong with it."""
    time.sleep(0.2)
    if step != int(STEP) or (rank != int(GUILTY) and HOW != "alike"):
        return
    match HOW:
        case "raises" | "alike":
            augment(step)
        case "slowly":
            atexit.register(time.sleep, SECONDS_TO_LEAVE)
            augment(step)
        case "leaves":
            sys.exit(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crashes":
            ctypes.string_at(0)
        case "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "memory":
            fill_memory()
        case "oom-killed":
            fill_group()
        case "sleeps" | "power" | "network":
            next_batch()
        case _:
            pass
