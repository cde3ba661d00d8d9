"""A program named `nvidia-smi` that answers as the real one does, for GPUs that a test describes.

It reads what it says anew each time, so that a test can change its GPUs while a run goes on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

H200 = {
    "index": "0",
    "name": "NVIDIA H200",
    "uuid": "GPU-00000000-1111-2222-3333-444444444444",
    "pci.bus_id": "00000000:00:06.0",
    "driver_version": "580.159.04",
    "utilization.gpu": "100",
    "memory.used": "4390",
    "memory.total": "143771",
    "temperature.gpu": "62",
    "power.draw": "656.79",
    "power.limit": "700.00",
    "clocks_throttle_reasons.active": "0x0000000000000000",
    "ecc.errors.uncorrected.volatile.total": "0",
    "compute_mode": "Default",
    "mig.mode.current": "Disabled",
}
"""The values that a real one has printed, but for its limit of power."""
_PROGRAM = """\
import json, sys, time
with open(STATE) as file:
    said = json.load(file)
with open(STATE + ".asked", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
asked = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--query"))
what = "gpu" if "--query-gpu" in asked else "apps" if "--query-compute-apps" in asked else "list"
if what == "list":
    print(said["listed"] if "-L" in sys.argv else said["table"])
    sys.exit(said["status"])
fields = next(iter(asked.values())).split(",")
for field in fields:
    if field in said["unknown"]:
        print(f'Field "{field}" is not a valid field to query.\\n')
        sys.exit(2)
for row in said[what]:
    print(row if isinstance(row, str) else ", ".join(row[field] for field in fields))
sys.stdout.flush()
time.sleep(said["seconds"])
sys.exit(said["status"])
"""


class FakeNvidiaSmi:
    """The program `nvidia-smi` in a folder; `gpus` and `apps` are rows by field, or whole lines."""

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / "nvidia-smi.json"
        self._said: dict[str, Any] = {
            "gpu": [],
            "apps": [],
            "unknown": [],
            "status": 0,
            "seconds": 0,
            "listed": "",
            "table": "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: 13.0 |",
        }
        self.say()
        program = folder / "nvidia-smi"
        text = f"#!{sys.executable} -IS\nSTATE = {str(self._state)!r}\n{_PROGRAM}"
        program.write_text(text)
        program.chmod(0o755)

    def say(self, **changes: Any) -> None:
        """Changes what it says from now on."""
        self._said.update(changes)
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(self._said))
        new.replace(self._state)

    @property
    def asked(self) -> list[list[str]]:
        """The arguments of each call so far."""
        path = Path(f"{self._state}.asked")
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


def gpu(index: int, **values: str) -> dict[str, str]:
    """A row of an H200 with another index, and other values; `__` stands for a dot in a field."""
    own = {
        "index": str(index),
        "uuid": f"GPU-{index:08x}-1111-2222-3333-444444444444",
        "pci.bus_id": f"00000000:{index + 6:02X}:00.0",
    }
    return {**H200, **own, **{name.replace("__", "."): value for name, value in values.items()}}


def app(index: int, pid: int, memory: str = "1222", name: str = "python3") -> dict[str, str]:
    """A row of a process on a GPU."""
    uuid = gpu(index)["uuid"]
    return {
        "gpu_uuid": uuid,
        "pid": str(pid),
        "used_gpu_memory": memory,
        "process_name": name,
    }
