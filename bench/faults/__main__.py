"""Plants faults in a copy of the program, one at a time, and tells which tests find them.

    python -m bench.faults record [--tests FOLDER …]   which tests run what: once for a commit
    python -m bench.faults plant                       draws faults by lot, and runs tests on each
    python -m bench.faults table                       the result, with what was judged by hand

The tests that run a fault's statements come first, those of `make test` before those of
`make prove`; the first that fails has found it. What no test finds is judged by hand, in
`bench/faults/judged.toml`: equivalent to the program without it, or a promise without a test.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import queue
import re
import resource
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.faults import copies
from bench.faults.covering import Covering, Test, within
from bench.faults.sites import Fault, draw, found_again

SEED = 53
COUNT = 60
JUDGED = Path(__file__).parent / "judged.toml"
_UNSTABLE = 2
"""How many tests that fail without the fault, too, are passed over."""
_GRACE = 20.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)


class Trial:
    """Faults in one copy, one after the other."""

    def __init__(self, copy: Path, covering: Covering, limits: argparse.Namespace) -> None:
        self._copy, self._covering, self._limits = copy, covering, limits

    def of(self, fault: Fault) -> dict[str, Any]:
        """Plant a fault, and return what the tests say; the copy is whole again after it."""
        source = (self._copy / fault.path).read_bytes()
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        if self._limits.files:
            return self._by_files(fault, source)
        tests = self._covering.of(fault)
        told: dict[str, Any] = {"found": "", "by": "", "covering": len(tests), "tried": 0}
        for part in ("test", "prove"):
            for quick in (True, False):
                seconds = self._limits.quick_seconds if quick else self._limits.process_seconds
                some = [test for test in tests if test.part == part and test.quick == quick]
                if some := within(some, seconds):
                    told["tried"] += len(some)
                    by = self._finder(fault, source, some)
                    if by:
                        told.update(found=part, by=by)
                        break
            if told["found"]:
                break
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {**told, "wall": round(time.monotonic() - began), "processor": round(spent)}

    def _by_files(self, fault: Fault, source: bytes) -> dict[str, Any]:
        for part in ("test", "prove"):
            files = [Test(file, part, self._limits.process_seconds) for file in self._limits.files]
            if by := self._finder(fault, source, files, ["--part", part]):
                return {"found": part, "by": by}
        return {"found": "", "by": "", "files": self._limits.files}

    def _finder(
        self, fault: Fault, source: bytes, tests: list[Test], more: Sequence[str] = ()
    ) -> str:
        """The test that finds the fault; a test with processes passes without it."""
        for _ in range(_UNSTABLE + 1):
            by = self._failed(fault.path, fault.plant(source), source, tests, more)
            if not by or tests[0].quick or "::" not in by:
                return by
            suspect = Test(by, "", self._limits.process_seconds)
            if not self._failed(fault.path, source, source, [suspect]):
                return by
            tests = [test for test in tests if test.name != by]
            more = [*more, "--deselect", by]
        return ""

    def _failed(
        self,
        path: str,
        text: bytes,
        source: bytes,
        tests: list[Test],
        more: Sequence[str] = (),
    ) -> str:
        copies.plant(self._copy, path, text)
        try:
            return self._run(tests, more)
        finally:
            copies.plant(self._copy, path, source)

    def _run(self, tests: list[Test], more: Sequence[str]) -> str:
        """The first of the tests that fails, or what else went wrong; empty if they pass."""
        names = self._copy / "build/faults-tests"
        names.parent.mkdir(exist_ok=True)
        names.write_text("\n".join(test.name for test in tests) + "\n")
        seconds = sum(test.seconds for test in tests)
        words = [".venv/bin/pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*words, "-o", f"timeout={self._limits.hang_seconds}", *more, f"@{names}"],
            cwd=self._copy,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: _limit(seconds),
        )
        late = 60 + 4 * self._limits.hang_seconds
        try:
            said, _ = process.communicate(timeout=late)
        except subprocess.TimeoutExpired:
            process.terminate()  # pytest ends what it has started
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_GRACE)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "" if not tests[0].quick else f"no end within {late} s"
        if process.returncode in (0, 5):  # all passed; none is in that part of the suite
            return ""
        if process.returncode == 1 and (failed := _FAILED.search(said)):
            return failed[1]
        print("\n".join(said.splitlines()[-4:]), flush=True)
        return f"pytest ended with {process.returncode}"


def _limit(seconds: float) -> None:
    """Bound the processor's time of a process that is to run pytest."""
    most = round(60 + 4 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 10))


def record(options: argparse.Namespace) -> int:
    """Run tests in a copy that records what they run."""
    copy = copies.copy_of(options.commit, options.folder / "recorded")
    copies.record_in(copy, options.folder / "records")
    words = ["-p", "faults_plugin", "-q", "--tb=line", "-p", "no:cacheprovider"]
    workers = ["-n", str(options.workers), "--dist", "loadgroup", "--no-loadscope-reorder"]
    command = [".venv/bin/pytest", *words, *workers, *options.tests]
    return subprocess.run(command, cwd=copy).returncode


def faults_of(options: argparse.Namespace, root: Path) -> list[Fault]:
    """The faults: drawn, or those of a file, in this version."""
    if options.faults is None:
        return [*draw(root, options.count, options.seed)]
    drawn = [json.loads(line) for line in options.faults.read_text().splitlines()]
    fields = Fault.__dataclass_fields__
    olds = [Fault(**{key: value for key, value in one.items() if key in fields}) for one in drawn]
    faults = [(old, found_again(old, root)) for old in olds]
    for old, fault in faults:
        if fault is None:
            print(f"gone: {old.name}")
    return [fault for _, fault in faults if fault is not None]


def plant(options: argparse.Namespace) -> int:
    """Try each fault that has no result yet."""
    roots = [
        copies.copy_of(options.commit, options.folder / f"planted{n}") for n in range(options.jobs)
    ]
    results = options.folder / "results.jsonl"
    told_of = _results(results)
    done = {told["name"] for told in told_of if told["found"] or not options.again}
    waiting: queue.SimpleQueue[Fault] = queue.SimpleQueue()
    for fault in faults_of(options, roots[0]):
        if fault.name not in done and options.only in fault.name:
            waiting.put(fault)
    covering = Covering(options.folder / "records", roots[0])
    writing = threading.Lock()

    def work(copy: Path) -> None:
        trial = Trial(copy, covering, options)
        while True:
            try:
                fault = waiting.get_nowait()
            except queue.Empty:
                return
            told = {**fault.to_json(), **trial.of(fault)}
            with writing, results.open("a") as file:
                file.write(json.dumps(told) + "\n")
                print(told["found"] or "survived", told["by"], "|", fault.name, flush=True)

    workers = [threading.Thread(target=work, args=(copy,)) for copy in roots]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return table(options)


def _results(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().splitlines() if file.exists() else []
    last = {told["name"]: told for told in map(json.loads, lines)}
    return [*last.values()]


def table(options: argparse.Namespace) -> int:
    """Print a line for each fault, and how many were found."""
    judged = tomllib.loads(JUDGED.read_text()) if JUDGED.exists() else {}
    counts = {"test": 0, "prove": 0, "equivalent": 0, "survived": 0}
    print("| fault | place | found by |\n| --- | --- | --- |")
    for told in _results(options.folder / "results.jsonl"):
        judgement = judged.get(told["name"], "")
        how = told["found"] or ("equivalent" if judgement.startswith("equivalent") else "survived")
        counts[how] += 1
        by = f"make {told['found']}: {told['by']}" if told["found"] else f"{how}. {judgement}"
        cells = (told["kind"], f"`{told['name']}` (line {told['line']})", by)
        print("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    print(", ".join(f"{how}: {count}" for how, count in counts.items()))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("do", choices=("record", "plant", "table"))
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--folder", type=Path, help="build/faults/COMMIT, unless it is said")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--faults", type=Path, help="results of another version: the same faults")
    parser.add_argument("--only", default="", help="only faults with this text in their names")
    parser.add_argument("--again", action="store_true", help="what has survived, too")
    parser.add_argument("--tests", nargs="+", default=["tests"])
    parser.add_argument("--files", nargs="+", help="tests to try instead of those of the record")
    parser.add_argument("--workers", type=int, default=2, help="of pytest, while it records")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time, each in a copy")
    parser.add_argument("--quick-seconds", type=float, default=60.0)
    parser.add_argument("--process-seconds", type=float, default=120.0)
    parser.add_argument("--hang-seconds", type=int, default=120, help="after which a test hangs")
    options = parser.parse_args(words)
    default = copies.ROOT / "build/faults" / copies.short(options.commit)
    options.folder = (options.folder or default).resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    verbs = {"record": record, "plant": plant, "table": table}
    return verbs[options.do](options)


if __name__ == "__main__":
    raise SystemExit(main())
