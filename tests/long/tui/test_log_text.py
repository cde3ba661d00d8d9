"""The text layer below the panes: sanitising, line access, the place in a log."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

from launcher.ids import TaskId
from launcher.store.logs import LogFile
from tui.log.document import MAX_LINE, Document


def test_lines_by_number_in_any_log(tmp_path: Path) -> None:
    """Whatever the chunks were, each line is found by its number, with its place."""
    rng = random.Random(5)
    for trial in range(4):
        file = LogFile(tmp_path / f"{trial}.log")
        document, written, now = Document(TaskId("worker", 0), file), b"", 0.0
        for _ in range(25):
            body = bytes(rng.choices(b"ab\r", k=rng.choice([0, 1, 80])))
            chunk = b"".join(
                body * rng.choice([1, 1, 1, 1, 900]) + rng.choice([b"\n", b"\n", b""])
                for _ in range(rng.choice([1, 30, 200]))
            )
            now += rng.choice([0.0, 0.1, 1.0])
            file.append(len(written), chunk, now)
            written += chunk
            document.refresh()
            lines = written.split(b"\n")
            if not lines[-1]:
                lines.pop()
            assert document.count == len(lines)
            starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
            for number in {0, len(lines) - 1, *rng.sample(range(len(lines)), min(9, len(lines)))}:
                line = document.line(number)
                assert line.start == starts[number]
                assert document.number_at(line.start) == number
                assert line.open == (number == len(lines) - 1 and not written.endswith(b"\n"))
                if len(lines[number]) <= MAX_LINE:
                    assert line.data == lines[number]
                else:
                    assert len(line.data) <= MAX_LINE
        file.close()
