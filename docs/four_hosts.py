"""Writes `docs/four-hosts-events.jsonl`: the events of a training on four hosts, as they came.

    python -m docs.four_hosts        (root; ip and sshd)

The hosts are the testbed's: network namespaces with real OpenSSH, real MNIST in IDX files.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import TRAINING
from tests.support.command import Up, write
from tests.testbed.namespaces import Testbed

TARGET = Path(__file__).with_name("four-hosts-events.jsonl")


def main() -> None:
    """One run; its last line and where its events are."""
    data = Path(os.environ["TFMUX_TEST_DATA"])
    with tempfile.TemporaryDirectory() as folder, Testbed(data) as testbed:
        os.environ["XDG_DATA_HOME"] = folder
        text = TRAINING.format(hosts=testbed.hosts_toml()).replace("400", "3000")
        with Up("up", str(write(Path(folder), text)), "--json") as up:
            code = up.wait(600)
            done = up.log("worker:0", "test accuracy")["text"]
        shutil.copy(RunFolder.find(up.run_id).events, TARGET)
    sys.stdout.write(f"exit {code}: {done}\n")


if __name__ == "__main__":
    main()
