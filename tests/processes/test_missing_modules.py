"""Modules that a program imports and a host does not have, as `tfmux check` tells them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.support.environments import LIBRARY, environment

SCRIPTS = {
    "certain.py": "import yaml_a\nfrom cv2_a import x\nimport json, sys\n",
    "guarded.py": "try:\n    import wandb_a\nexcept ImportError:\n    wandb_a = None\n",
    "brought.py": "import late_a\n",
    "path.py": "import far_a\n",
    "moved.py": "import sys\nsys.path.insert(0, '/srv/lib')\nimport moved_a\n",
    "local.py": "import mine\nimport google_a.protobuf\n",
    "mine.py": "import deep_a\n",
}


def findings(tmp_path: Path, jobs: dict[str, Any], **more: Any) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a check, and what it says of modules and scripts."""
    text = cluster_text(jobs, framework="none", workdir=".", **more)
    done = run("check", str(write(tmp_path, text)), "--json")
    codes = ("module-missing", "script-syntax")
    found = [f for f in json.loads(done.stdout)["findings"] if f["code"] in codes]
    return done.returncode, found


def test_missing_modules_are_named_and_only_sure_ones_stop(tmp_path: Path) -> None:
    """Given scripts whose modules no interpreter has, when the file is checked, then it names each
    with its place; only those are errors that nothing catches and nothing can bring."""
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    jobs: dict[str, Any] = {
        name[:-3]: {"tasks": 1, "command": ["{python}", name]} for name in SCRIPTS if name[0] != "m"
    }
    jobs["moved"] = {"tasks": 1, "command": ["{python}", "moved.py"]}
    jobs["brought"] |= {"setup": "export A=1"}
    jobs["path"] |= {"env": {"PYTHONPATH": "/srv/lib"}}
    code, found = findings(tmp_path, jobs)
    assert code == 3
    said = {f["sentence"]: f["severity"] for f in found}
    (error,) = [sentence for sentence, severity in said.items() if severity == "error"]
    assert {name for name in ("yaml_a", "cv2_a", "deep_a", "google_a") if name in error} == {
        *("yaml_a", "cv2_a", "deep_a", "google_a")
    }
    assert "certain.py, line 1" in error and "json" not in error
    for name, why in {
        "wandb_a": "; the program goes on without",
        "late_a": ", unless setup brings it",
        "far_a": ", unless it is in PYTHONPATH then",
        "moved_a": ", unless the program adds its directory to sys.path",
    }.items():
        (sentence,) = [each for each in said if name in each]
        assert said[sentence] == "warn" and sentence.endswith(why), sentence
    code, found = findings(tmp_path, {"certain": jobs["certain"]}, prepare=["make"])
    assert code == 0 and "unless prepare installs it" in found[0]["sentence"]
    code, found = findings(
        tmp_path, {"local": {"tasks": 1, "command": ["{python}", "-c", "import x"]}}
    )
    assert (code, found) == (0, [])


def test_another_python_of_the_host_is_offered(tfmux_home: Path, tmp_path: Path) -> None:
    """Given an environment in the home that has all that is missing, then its path is the remedy;
    one that has only the first is none."""
    (tmp_path / "train.py").write_text("import some_a\nimport some_b\n")
    environment(Path.home() / "venv-one", "some_a")
    jobs = {"worker": 1}
    _, (found,) = findings(tmp_path, jobs, command=["{python}", "train.py"])
    assert found["offer"] == "" and "pip install some_a some_b (a guess" in found["todo"]
    whole = environment(Path.home() / "venv-two", "some_a")
    (whole.parents[1] / LIBRARY / "some_b.py").touch()
    code, (found,) = findings(tmp_path, jobs, command=["{python}", "train.py"])
    assert code == 3 and found["offer"] == str(whole) and str(whole) in found["todo"]
    assert "that one has them" in found["todo"]


def test_a_script_of_another_python_is_said(tmp_path: Path) -> None:
    """Given a script of Python 2, and a host whose Python is older than what a script needs, then
    both are errors with the line; the check never runs a script."""
    (tmp_path / "train.py").write_text("import os\nos.mkdir('ran')\nprint 'x'\n")
    (tmp_path / "new.py").write_text("match 1:\n    case 1:\n        pass\n")
    old = tmp_path / "python3.8"
    answer = json.dumps({"version": "3.8.10", "missing": []})
    whole = {"version": "3.8.10", "executable": "x", "tensorflow": "", "there": False}
    old.write_text(
        f'#!/bin/sh\ncase "$*" in *"missing = []"*) echo \'{answer}\';; '
        f"*) echo '{json.dumps(whole)}';; esac\n"
    )
    old.chmod(0o755)
    code, found = findings(tmp_path, {"worker": 1}, command=["{python}", "train.py"])
    assert code == 3 and found[0]["sentence"].startswith("train.py, line 3: ")
    code, found = findings(tmp_path, {"worker": 1}, command=[str(old), "new.py"])
    assert code == 3 and found[0]["sentence"].startswith("new.py: Pattern matching")
    assert f"{old} is Python 3.8.10" in found[0]["sentence"]
    assert not (tmp_path / "ran").exists()
