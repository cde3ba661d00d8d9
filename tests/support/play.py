"""Opens the app on a scripted run: `python -m tests.support.play [WORKERS] [--flood]`."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tui.app import TfmuxApp

TF_NOISE = (
    b"2026-11-20 18:30:04.112233: I tensorflow/core/platform/cpu_feature_guard.cc:210] This "
    b"TensorFlow binary is optimized to use available CPU instructions in performance-critical "
    b"operations.\n"
)


def script(run: ScriptedRun, flood: bool, stop: threading.Event) -> None:
    """A run as it usually goes, slowly enough to be watched."""
    names = [str(task.id) for task in run.snapshot().tasks]
    run.change(total_steps=20000, waiting="ps:0 on tf1:2222", waiting_since=time.time())
    for name in names:
        run.task(name, state=TaskState.STARTING, started=time.time(), attempt=1, pid=4100)
        run.write(name, TF_NOISE)
        if stop.wait(min(0.5, 3 / len(names))):
            return
        run.task(name, state=TaskState.READY, last_output=time.time())
    run.change(state=RunPhase.RUNNING, waiting="")
    step = local = 0
    rng = random.Random(7)
    line = b"\x1b[32mINFO\x1b[0m batch %d of \x1b[1mepoch 3\x1b[0m took 12 ms, queue is 4 deep\n"
    while step < 20000 and run.snapshot().state is RunPhase.RUNNING and not stop.wait(0.1):
        local += 7
        for name in names:
            if name.startswith("worker"):
                step += rng.randint(5, 15)
                loss = 2.3 * 0.9997**step + rng.random() * 0.05
                text = (
                    f"After {local} training steps ({step} global steps), loss on training batch "
                    f"is {loss:.4f}.  (0.010 sec/batch)\n"
                )
                run.write(name, text.encode())
            if flood:
                run.write(name, b"".join(line % i for i in range(4000)))
    if stop.is_set():
        return
    if run.snapshot().state is RunPhase.KILLING:
        stop.wait(2)
        run.all_tasks(state=TaskState.KILLED, exit_signal="TERM", ended=time.time())
        run.end(Outcome.KILLED, 130)
    else:
        run.all_tasks(state=TaskState.EXITED, exit_code=0, ended=time.time())
        run.task("ps:0", state=TaskState.STOPPED, exit_code=None, exit_signal="TERM")
        run.end()


def main() -> None:
    """Plays until the app is left."""
    workers = int(next((a for a in sys.argv[1:] if a.isdecimal()), "2"))
    with tempfile.TemporaryDirectory() as folder:
        run = ScriptedRun(Path(folder), workers=workers, hosts=4)
        stop = threading.Event()
        thread = threading.Thread(target=script, args=(run, "--flood" in sys.argv, stop))
        thread.start()
        try:
            result = TfmuxApp(run).run()
        finally:
            stop.set()
            thread.join()
    print("exit", result)


if __name__ == "__main__":
    main()
