"""All benchmarks, one after the other: prints one table and writes it with its figures.

    python -m bench [--rounds 5] [NAME …]

Each runs in a process of its own. The figures go to `docs/benchmarks.json`; the table in
`docs/benchmarks.md` is made anew from them. Rows of benchmarks that are not named stay as they
were. One that fails keeps its old rows, and the command ends with 1.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.report import ROUNDS, loaded, table

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("start", "idle", "screens", "flood", "kill", "looks", "trainer", "scale")
"""In the order of their figures."""
SHOWN = (
    "first paint",
    "16 tasks on 4 SSH hosts started, from the command",
    "16 tasks on 4 SSH hosts started, from the key on a screen",
    "16 panes flooded: lines/s",
    "16 panes flooded: key to handler, p95",
    "search of 1024 MiB, plain lines",
    "flood, 4 tasks",
    "flood over SSH, 4 hosts, 4 tasks",
    "kill-all on 4 hosts, 16 tasks quiet: confirmed",
    "trainer, async: global steps/s",
    "trainer, async under tfmux: global steps/s",
)
"""Rows of the page: those beside what people would use instead. All rows are printed and stored."""
BEGIN, END = "<!-- begin of the table: python -m bench -->", "<!-- end of the table -->"
_PROGRAMS = (("ssh", "-V"), ("clush", "--version"))


def measured(name: str, rounds: int) -> list[dict[str, Any]] | None:
    """The rows of one benchmark; None when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        words = ["-m", f"bench.{name}", f"--rounds={rounds}", f"--json={file}"]
        print(f"\n{name}", flush=True)
        status = subprocess.run([sys.executable, *words], cwd=ROOT).returncode
        if status or not file.exists():
            print(f"bench.{name} failed: status {status}", file=sys.stderr)
            return None
        rows: list[dict[str, Any]] = json.loads(file.read_text())
        return rows


def machine() -> dict[str, str]:
    """The machine and the versions that the figures are of."""
    found = {
        "processors": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for name in ("tensorflow", "textual", "asyncssh"):
        found[name] = version(name)
    for program, word in _PROGRAMS:
        try:
            done = subprocess.run([program, word], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        text = (done.stdout + done.stderr).strip().partition(",")[0]
        found[program] = text.removeprefix(f"{program} ")
    return found


def write(stored: dict[str, Any]) -> list[str]:
    """Writes the figures, and the table made from them into the page; returns the table of all."""
    (ROOT / "docs" / "benchmarks.json").write_text(json.dumps(stored, indent=1) + "\n")
    rows = [row for name in NAMES for row in loaded(stored["rows"].get(name, []))]
    shown = [row for row in rows if row.what in SHOWN and (row.theirs or row.skipped)]
    facts = ", ".join(f"{name} {value}" for name, value in stored["machine"].items())
    days: dict[str, list[str]] = {}
    for name in NAMES:
        days.setdefault(stored["days"].get(name, "never"), []).append(name)
    when = "; ".join(f"{day}: {', '.join(names)}" for day, names in sorted(days.items()))
    page = ROOT / "docs" / "benchmarks.md"
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(
        "\n".join(
            [
                before + BEGIN,
                "",
                f"Machine: {facts}.",
                f"Measured {when}.",
                "",
                *table(shown),
                "",
                END,
            ]
        )
        + after
    )
    return table(rows)


def main() -> int:
    """Measures, prints the table, writes it; 1 when a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(
            f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}"
        )
    file = ROOT / "docs" / "benchmarks.json"
    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    stored = {"rows": {}, "days": {}, **stored}
    stored["machine"] = machine()
    failed = []
    for name in options.names or NAMES:
        rows = measured(name, options.rounds)
        if rows is None:
            failed.append(name)
        else:
            stored["rows"][name] = rows
            stored["days"][name] = time.strftime("%Y-%m-%d")
            write(stored)
    print("\n" + "\n".join(write(stored)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
