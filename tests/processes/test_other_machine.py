"""A run's folder that two machines share: `localhost` is the one that launched the run, and no
other one can say what is left there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from launcher.paths import runs_home
from tests.support import command
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.terminal import living

SLOWLY = "import time\nfor step in range(100000): print('step', step, flush=True); time.sleep(0.05)"
KEPT = 'on_hangup = "detach"\non_disconnect = "keep"'
ELSEWHERE = "not confirmed: localhost of this run is other, which launched it: use tfmux there"
UNKNOWN = "not confirmed: localhost of this run is another machine, which launched it"


def test_a_kill_from_another_machine_confirms_no_local_task(tmp_path: Path) -> None:
    """Given a folder that another machine has launched, then `ps`, `rm` and `kill` name that
    machine or its host, the kill fails, and the task lives, whatever host of another file the
    record's last line says was the run's; on that machine it is ended. The same with the
    cluster file alone, where the folder is not there, and nobody knows the machine."""
    cluster = write(tmp_path, one_task(SLOWLY, settings=KEPT))
    with Up("up", str(cluster), "--json") as up:
        up.log("worker:0", "step 3")
        run_id = up.run_id
        up.kill_launcher()
    run = runs_home() / run_id
    kept = shutil.copytree(run, tmp_path / "kept")
    file = run / "launch.json"
    here = json.loads(file.read_text())
    there = {**here["machine"], "name": "other", "boot": "other-boot", "id": "other-id"}
    file.write_text(json.dumps({**here, "machine": there}))
    listed = command.run("ps")
    assert run_id in listed.stdout and "other" in listed.stdout + listed.stderr
    told = (run / "events.jsonl").read_bytes()
    lie = {"time": 1e9, "event": "end", "run": run_id, "name": "one", "state": "ended"}
    lie |= {"started": 1.0, "ended": 2.0, "outcome": "success", "exit_code": 0, "clean": True}
    for last in (b"", json.dumps({**lie, "hosts": ["tf9"]}).encode() + b"\n"):
        (run / "events.jsonl").write_bytes(told + last)
        deleted = command.run("rm", "--force", run_id)
        assert deleted.returncode == 1 and "may have processes on localhost" in deleted.stderr
    (run / "events.jsonl").write_bytes(told)
    done = command.run("kill", run_id)
    assert done.returncode == 4, done.stdout + done.stderr
    assert ELSEWHERE in done.stdout and "no process is left" not in done.stdout
    assert len(living()) == 1

    shutil.rmtree(run)
    elsewhere = command.other_machine(Path(os.environ["XDG_DATA_HOME"]))
    no_processes = ["unshare", "-pf", "--mount-proc", *elsewhere]  # of this machine
    done = command.run("kill", run_id, "--file", str(cluster), prefix=no_processes)
    assert done.returncode == 4, done.stdout + done.stderr
    assert UNKNOWN in done.stdout and "no process is left" not in done.stdout
    assert len(living()) == 1

    shutil.rmtree(run)
    shutil.copytree(kept, run)
    done = command.run("kill", run_id)
    assert done.returncode == 0 and "no process is left, 1 host confirmed" in done.stdout, done
    assert not living()
