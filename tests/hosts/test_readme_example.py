"""The cluster file of the README trains a program of the tutorials, as it stands."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.command import Up, run
from tests.support.manual import Page
from tests.support.paths import REPOSITORY
from tests.testbed.namespaces import Testbed

PROGRAMS = REPOSITORY / "docs" / "examples" / "tf1"


def test_the_file_of_the_readme_trains(testbed: Testbed, tmp_path: Path, tfmux_home: Path) -> None:
    """Given the README's file in the folder that it names, and hosts `tf1` and `tf2` that `ssh`
    reaches, when it is checked, then nothing is said of TensorFlow 1; when it is launched, then it
    trains to the end. Only the Python that has TensorFlow there is added."""
    (file,) = (b for b in Page(REPOSITORY / "README.md").blocks if b.language == "toml")
    testbed.give_access(tfmux_home)
    assert f"`{PROGRAMS.relative_to(REPOSITORY)}`" in (REPOSITORY / "README.md").read_text()
    folder = tmp_path / "mnist"
    shutil.copytree(PROGRAMS, folder)
    text = file.body
    for name in ("tf1", "tf2"):
        here = f'[hosts.{name}]\nssh = "{name}"'
        assert here in text
        text = text.replace(here, f'{here}\npython = "{testbed[name].python}"')
    cluster = folder / "cluster.toml"
    cluster.write_text(text)
    checked = run("check", str(cluster))
    assert checked.returncode == 0 and "tensorflow-1" not in checked.stdout, checked.stdout
    with Up("up", str(cluster), "--json", cwd=folder) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", "validation cross entropy")
