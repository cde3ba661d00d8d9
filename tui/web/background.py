"""A launcher without a screen, started by a page: `launch RUN [RESUME]` or `attach RUN`.

It prints nothing but what goes wrong: pages read the run's logs and events from its folder.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from launcher.cluster.file import load
from launcher.errors import TfmuxError
from launcher.paths import runs_home
from launcher.session.attach import StoredRun
from launcher.session.session import Session
from launcher.store.runs import RunFolder
from tui.exits import Exit
from tui.report import report


def main(words: Sequence[str]) -> int:
    """Tends the run to its end; returns its exit code."""
    what, run_id, *rest = words
    folder = RunFolder(runs_home() / run_id)
    try:
        if what == "launch":
            cluster = load(folder.cluster_file, base=folder.origin, for_launch=True)
            session = Session.begin(folder, cluster, resume=rest[0] if rest else None)
        else:
            session = StoredRun(folder).attach()

        def end(number: int, frame: FrameType | None) -> None:
            session.kill_all(by_person=False)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, end)
        session.ask_viewers()
        session.start()
        session.wait()
    except TfmuxError as error:
        print(f"tfmux: {error}", file=sys.stderr)
        return Exit.FAILED
    snapshot = session.snapshot()
    print(report(snapshot, folder.path), file=sys.stderr)
    return Exit.FAILED if snapshot.exit_code is None else snapshot.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
