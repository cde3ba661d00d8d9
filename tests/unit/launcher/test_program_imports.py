"""Modules that a task's program imports when it starts, found in its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.files.imports import ProgramImports, imports_of
from launcher.files.listing import Copied
from launcher.plan.planner import make_plan
from launcher.preflight.distributions import advice
from tests.support.cluster_texts import cluster_text


def imports(
    folder: Path, files: dict[str, str], *command: str, env: dict[str, str] | None = None
) -> ProgramImports | None:
    """What a program of this machine imports, with these files in its workdir."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    words = ["{python}", *(command or ("train.py",))]
    text = cluster_text({"worker": 1}, command=words, workdir=".", env=env or {})
    plan = make_plan(loads(text, "c.toml", folder), "r")
    return imports_of(plan, plan.hosts[0], plan.tasks[0], Copied(()))


PROGRAMS: dict[str, tuple[dict[str, str], dict[str, bool]]] = {
    "plain": ({"train.py": "import yaml\nimport a.b.c as d, e\nfrom f.g import h\n"},
              {"yaml": True, "a": True, "e": True, "f": True}),
    "guarded": ({"train.py": "try:\n  import wandb\nexcept ImportError:\n  wandb = None\n"},
                {"wandb": False}),
    "any exception": ({"train.py": "try:\n  import wandb\nexcept:\n  import wandb2\n"},
                      {"wandb": False}),
    "another exception": ({"train.py": "try:\n  import a\nexcept (KeyError, OSError):\n  pass\n"},
                          {"a": True}),
    "finally": ({"train.py": "try:\n  pass\nfinally:\n  import a\n"}, {"a": True}),
    "suppressed": ({"train.py": "import contextlib\nwith contextlib.suppress(ImportError):\n"
                                "  import a\n"}, {"contextlib": True, "a": False}),
    "typing": ({"train.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import a\n"},
               {"typing": True}),
    "function": ({"train.py": "def main():\n  import a\nclass A:\n  import b\n"}, {"b": True}),
    "version": ({"train.py": "import sys\nif sys.version_info < (3, 11):\n  import tomli\n"},
                {"sys": True}),
    "main": ({"train.py": "if __name__ == '__main__':\n  import a\n"}, {"a": True}),
    "module": ({"train.py": "import mine\n", "mine.py": "import a\nif __name__ == '__main__':\n"
                "  import b\n"}, {"a": True}),
    "package": ({"train.py": "from mine import sub\n", "mine/__init__.py": "import a\n",
                 "mine/sub.py": "from . import other\nfrom .deep.er import x\n",
                 "mine/other.py": "import b\n", "mine/deep/er.py": "import c\n"},
                {"a": True, "b": True, "c": True}),
    "namespace": ({"train.py": "import space.mine\n", "space/mine.py": "import a\n"}, {"a": True}),
    "guarded module": ({"train.py": "try:\n  import mine\nexcept ImportError:\n  pass\n",
                        "mine.py": "import a\n"}, {"a": False}),
    "twice": ({"train.py": "try:\n  import a\nexcept ImportError:\n  pass\nimport mine\n",
               "mine.py": "import a\n"}, {"a": True}),
    "circle": ({"train.py": "import one\n", "one.py": "import two\n", "two.py": "import one, a\n"},
               {"a": True}),
    "beside": ({"src/train.py": "import mine, other\n", "src/mine.py": "", "tools/other.py": ""},
               {"mine": True}),
    "results": ({"train.py": "import wandb\n", "wandb/run-1/log.txt": ""}, {"wandb": True}),
    "extension": ({"train.py": "import ops\n", "ops.cpython-311-x86_64-linux-gnu.so": ""}, {}),
    "elsewhere": ({"train.py": "import sys\nsys.path.append('lib')\nimport mine\n",
                   "lib/mine.py": ""}, {"sys": True}),
}  # fmt: skip


@pytest.mark.parametrize("case", PROGRAMS)
def test_imports_at_the_start(case: str, tmp_path: Path) -> None:
    """Names that no file of the workdir is, and whether the program ends without them."""
    files, expected = PROGRAMS[case]
    found = imports(tmp_path, files)
    if case == "beside":
        assert found is None
        found = imports(tmp_path, files, "src/train.py")
        expected = {}
    assert found is not None
    assert {module.name: module.certain for module in found.modules} == expected


def test_programs_of_other_forms(tmp_path: Path) -> None:
    """`-m` starts a package of the workdir, PYTHONPATH adds a directory of it, and options of the
    interpreter come before; what is no file here is not known."""
    files = {
        "pkg/__init__.py": "",
        "pkg/__main__.py": "import a, mine\n",
        "lib/mine.py": "import b",
    }
    found = imports(tmp_path, files, "-u", "-m", "pkg", env={"PYTHONPATH": "lib"})
    assert found is not None and {m.name for m in found.modules} == {"a", "b"}
    (tmp_path / "pkg/run.py").write_text("import c\n")
    found = imports(tmp_path, {}, "-X", "dev", "-m", "pkg.run")
    assert found is not None and {m.name for m in found.modules} == {"c"}
    for words in (["-c", "import a"], ["/usr/bin/absent.py"], ["-m", "json.tool"], ["absent.py"]):
        assert imports(tmp_path, {}, *words) is None


def test_what_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    """With its line; a file that something else than Python has in it, too."""
    found = imports(tmp_path, {"train.py": "import mine\nprint 'x'\n", "mine.py": "import a\n"})
    assert found is not None and not found.modules
    (script,) = found.unreadable
    assert (script.file, script.line, script.certain) == ("train.py", 2, True)
    found = imports(tmp_path, {"train.py": "import mine, b\n", "mine.py": "match x:\n"})
    assert found is not None and [m.name for m in found.modules] == ["b"]
    assert found.unreadable[0].file == "mine.py"
    found = imports(tmp_path, {"train.py": "\0"})
    assert found is not None and "null bytes" in found.unreadable[0].why


def test_packages_have_other_names() -> None:
    """One that is not known is said to be a guess."""
    assert advice("python3", ["yaml", "cv2", "PIL", "sklearn", "torch"]) == (
        "run python3 -m pip install pyyaml opencv-python-headless pillow scikit-learn torch"
    )
    assert advice("python3", ["foo"]).endswith("install foo (a guess by the module's name)")
