"""Files that commands need or name and hosts do not get: modules of `python -m`, and imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.files.listing import Copied, Tree, list_tree
from launcher.files.needed import left_out_command, other_files
from launcher.plan.run_plan import Plan
from tests.support.cluster_texts import cluster_text
from tests.support.plans import plan_of

FILES = {
    "train.py": "import os, wandb, src.models.net\nfrom src import helpers, own\n",
    "src/__init__.py": "",
    "src/helpers.py": "from . import deep\nfrom .deep.er import x\n",
    "src/deep/__init__.py": "",
    "src/deep/er.py": "from .. import models as m\nimport secret\n",
    "src/models/__init__.py": "",
    "src/models/net.py": "",
    "src/own.py": "from ... import above\nfrom ....x import above\n",
    "secret.py": "",
    "wandb/run-1/log.txt": "",
    "lonely/mod.py": "",
}


def needs(root: Path, *command: str) -> tuple[str, set[str]]:
    """The refusal of a command, and what is said of other files, with these lines ignored."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".gitignore").write_text("models/\nsecret.py\nwandb/\nlonely/\n")
    text = cluster_text({"worker": "far"}, hosts={"far": {"ssh": "far"}}, command=list(command))
    plan: Plan = plan_of(text)
    tree = Tree("work", root)
    copied = Copied([(tree, list_tree(tree))])
    said = {why for _, why in other_files(plan, plan.host("far"), copied)}
    return left_out_command(plan, plan.host("far"), copied), said


MODELS = "src/models/ is not copied: it is left out by {root}/.gitignore:1 (models/)"
SECRET = "secret.py is not copied: it is left out by {root}/.gitignore:2 (secret.py)"


@pytest.mark.parametrize("command", [("train.py",), ("-m", "train")])
def test_what_modules_import_is_followed_and_named_once(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """Packages in packages, relative imports, and modules that modules import; a directory that
    has no module in it is not what `import wandb` means."""
    refusal, said = needs(tmp_path, "python3", *command)
    assert not refusal
    assert said == {
        f"train.py imports src.models, but {MODELS}".format(root=tmp_path),
        f"src/deep/er.py imports secret, but {SECRET}".format(root=tmp_path),
    }


@pytest.mark.parametrize("shell", ["source .venv/bin/activate; python train.py", ". .venv/a"])
def test_what_is_behind_a_link_that_is_not_copied_is_named(shell: str, tmp_path: Path) -> None:
    """Also where the link leads to nothing here: a virtual environment of another machine."""
    (tmp_path / ".venv").symlink_to("/no/such/venv")
    _, said = needs(tmp_path, "bash", "-c", shell)
    assert [why for why in said if ".venv is not copied: it is a link to /no/such/venv" in why]


@pytest.mark.parametrize("name", ["src.models", "src.models.net"])
def test_a_module_that_its_package_lacks_is_refused(name: str, tmp_path: Path) -> None:
    """Its package is copied, so that it comes from nowhere else."""
    refusal, _ = needs(tmp_path, "python3", "-m", name)
    assert refusal == f"worker:0 cannot run on far: {MODELS}".format(root=tmp_path)


@pytest.mark.parametrize("name", ["lonely.mod", "secret", "src.nowhere", "src.deep"])
def test_a_module_that_may_come_from_elsewhere_is_not(name: str, tmp_path: Path) -> None:
    """The host may have it installed."""
    assert needs(tmp_path, "python3", "-m", name)[0] == ""
