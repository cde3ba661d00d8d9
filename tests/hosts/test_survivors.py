"""A process that cannot be ended: reported by name, never waited for without end."""

from __future__ import annotations

import os
import shutil
import signal

from tests.support.command import python_task
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, ready, receipt
from tests.testbed import proc

BECOMES_ROOT = """
import socket, subprocess, sys, time
words = ["/opt/asroot", "--reuid=0", "--regid=0", "--clear-groups", "sleep", "3005"]
subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
server = socket.create_server(("", int(sys.argv[1])))
time.sleep(3000)
"""


def test_a_survivor_is_named_and_stays_known(fresh_scenario: FaultScenario) -> None:
    """Given an ordinary user's task whose child has become root, when the run is killed, then exit
    4 and the receipt name that child, and so does `tfmux kill` until it is gone. Where root itself
    logs in, the same child is ended."""
    host = fresh_scenario.testbed["tf3"]
    for each in (fresh_scenario.testbed["tf1"], host):
        program = each.disk / "opt/asroot"
        shutil.copy("/usr/bin/setpriv", program)
        os.chown(program, 0, 0)
        program.chmod(0o4755)
    file = fresh_scenario.file(
        {"ps": ["tf1"], "worker": ["tf3"]},
        run="lease = 600\ngrace = 0.5",
        words=[*python_task(BECOMES_ROOT), "{port}"],
    )
    with fresh_scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        wait_until(lambda: [p for p in host.leftovers() if p.argv == ("sleep", "3005")], "root")
        (survivor,) = [p for p in host.leftovers() if p.argv == ("sleep", "3005")]
        assert survivor.uid == 0
        try:
            up.press_ctrl_c()
            assert up.wait() == 4, up.transcript()
            assert receipt(up)["tf1"]["confirmed"] and not receipt(up)["tf1"]["survivors"]
            (named,) = receipt(up)["tf3"]["survivors"]
            assert (named["pid"], named["command"]) == (survivor.inner, "sleep 3005")
            assert f"pid {survivor.inner} (S) sleep 3005" in up.said
            assert f"finish with: tfmux kill {up.run_id}" in up.said
            code, said = fresh_scenario.kill(up.run_id)
            assert code == 4 and "sleep 3005" in said, said
        finally:
            proc.signal_process(survivor, signal.SIGKILL)
        code, said = fresh_scenario.kill(up.run_id)
        assert code == 0 and "no process is left" in said, said
    fresh_scenario.wait_dead()
