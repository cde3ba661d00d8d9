"""Whatever a cluster file of 1 MiB has in it: it is read, or refused, in a second and 200 MB."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.budgets import variants
from tests.support.paths import REPOSITORY

LARGEST = 1 << 20
NAME = 'name = "x"\n'
RUN = '[run]\nworkdir = ""\n'
JOB = '[jobs.worker]\ntasks = ["localhost:auto"]\n'
HEAD = f'{NAME}{JOB}{RUN}command = ["true"]\n'
LOCAL = '"localhost:auto",'
MANY = f"{NAME}[jobs.worker]\ntasks = [{LOCAL * 2000}]\n{RUN}"
LETTERS = r"\pL"
RANGE = "[1-1000]"


def repeated(part: str | Callable[[int], str], size: int = LARGEST - 60_000) -> str:
    """A part of a text, with its number where it has one, as often as there is room."""
    first = part if isinstance(part, str) else part(1000)
    times = size // (len(first.encode()) + (not isinstance(part, str)))
    return part * times if isinstance(part, str) else "".join(map(part, range(times)))


def listed(key: str, part: str | Callable[[int], str]) -> str:
    """A list of one key, in the last table."""
    return f"{key} = [{repeated(part)}]\n"


SHAPES: dict[str, Callable[[], str]] = {
    # no cluster file at all
    "comments": lambda: HEAD + repeated("# a\n"),
    "blank lines": lambda: HEAD + repeated("\n"),
    "carriage returns": lambda: HEAD + repeated("\r"),
    "open brackets": lambda: "x = " + repeated("["),
    "deep lists": lambda: "x = [" + repeated("[" * 300 + "]" * 300 + ",") + "]",
    "deep tables": lambda: "x = " + repeated("{a="),
    "deep key": lambda: repeated("a.") + "a = 1",
    "deep header": lambda: "[" + repeated("a.") + "a]",
    "deep keys": lambda: repeated(lambda n: "a." * 60 + f"b{n} = 1\n"),
    "spaced dots": lambda: "a" + repeated(" . b") + " = 1",
    "quoted parts": lambda: '"a"' + repeated('."b"') + " = 1",
    "wide headers": lambda: repeated(lambda n: f"[{'.'.join(f'a{n}_{k}' for k in range(15))}]\n"),
    "keys": lambda: HEAD + repeated(lambda n: f"k{n}=1\n"),
    "quoted keys": lambda: HEAD + repeated(lambda n: f'"\\u0061{n}"=1\n'),
    "tables": lambda: HEAD + repeated(lambda n: f"[t{n}]\n"),
    "arrays of tables": lambda: HEAD + repeated("[[t]]\n[[t.u]]\n[[t.u.v]]\n"),
    "inline tables": lambda: HEAD + listed("x", "{a=1},"),
    "numbers": lambda: HEAD + listed("x", "1,"),
    "unclosed list": lambda: HEAD + "x = [" + repeated("1,"),
    "long number": lambda: HEAD + "x = " + repeated("1"),
    "hexadecimal": lambda: HEAD + "x = 0x" + repeated("f"),
    "quotes": lambda: HEAD + "x = " + repeated('"'),
    "apostrophes": lambda: HEAD + "x = " + repeated("'"),
    "escaped quotes": lambda: HEAD + 'x = "' + repeated('\\"'),
    "text in lines": lambda: HEAD + 'x = """' + repeated('"" \\\n'),
    "words": lambda: HEAD + "x = " + repeated("word "),
    # values of a cluster file
    "same problem": lambda: HEAD + "[run.env]\n" + repeated(lambda n: f'A{n}="{{x}}"\n', 400_000),
    "unknown keys": lambda: HEAD + repeated(lambda n: f'taskz{n}=""\n', 400_000),
    "wrong tasks": lambda: NAME + "[jobs.worker]\n" + listed("tasks", '"a b",') + RUN,
    "patterns of tasks": lambda: (
        NAME + "[jobs.worker]\n" + listed("tasks", '"tf[1-1000]:1",') + RUN
    ),
    "many patterns": lambda: (
        f'{NAME}[jobs.worker]\ntasks = ["tf{RANGE * 100_000}:1"]\n{RUN}command = ["true"]\n'
    ),
    "hosts": lambda: NAME + repeated(lambda n: f'[hosts.h{n}]\nssh="h"\n') + HEAD[len(NAME) :],
    "jumps": lambda: f'{NAME}[hosts.h]\njump = "{repeated("a,")}a"\n{HEAD[len(NAME) :]}',
    "jobs": lambda: NAME + RUN + repeated(lambda n: f'[jobs.j{n}]\ntasks=["localhost:auto"]\n'),
    "braces": lambda: f'{NAME}{JOB}{RUN}command = ["' + repeated("{a") + '"]\n',
    "placeholders": lambda: (
        f'{NAME}{JOB}{RUN}command = ["' + repeated(lambda n: f"{{b{n}}}") + '"]\n'
    ),
    "addresses": lambda: (
        f'{MANY}command = ["true"]\n[run.env]\n' + repeated(lambda n: f'A{n}="{{cluster}}"\n')
    ),
    "environments": lambda: (
        f'{MANY}command = ["true"]\n[run.env]\n' + repeated(lambda n: f'A{n}="v"\n', 600_000)
    ),
    "ignored": lambda: HEAD + listed("exclude", lambda n: f'"*.a{n}",'),
    "stars": lambda: HEAD + 'exclude = ["' + repeated("*a") + '"]\n',
    "starred": lambda: HEAD + listed("exclude", '"' + "*a" * 2000 + '",'),
    "expression": lambda: f"{HEAD}[metrics]\npattern = '(?P<step>{repeated(LETTERS)})'\n",
    "expressions": lambda: (
        NAME
        + RUN
        + repeated(
            lambda n: (
                f"[jobs.j{n}]\ntasks=['localhost:auto']\nready={{log='(?i){LETTERS * 90}{n}'}}\n"
            )
        )
    ),
    "large expressions": lambda: (
        NAME
        + RUN
        + repeated(
            lambda n: f"[jobs.j{n}]\ntasks=['localhost:auto']\nready={{log='(.{{9}}){{90}}{n}'}}\n",
            20_000,
        )
    ),
    "order": lambda: HEAD + "[start]\n" + listed("order", lambda n: f'["w{n}"],'),
}

READ = """
import resource, sys, time
from pathlib import Path
from launcher.cluster.read import load
from launcher.errors import ClusterFileError
try:
    load(Path(sys.argv[1]).with_name("none"))
except ClusterFileError:
    pass
began, small = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(Path(sys.argv[1]))
except ClusterFileError as error:
    assert 0 < len(error.problems) <= 101, len(error.problems)
    assert len(str(error)) < 200_000
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - small)
"""


@variants("shape", SHAPES, test=5)
def test_any_file_is_read_or_refused_in_time(tmp_path: Path, shape: str) -> None:
    """The processor's time, so that a busy machine is no reason; a blow-up takes minutes. The
    problems that are told are no more than a screen or two."""
    file = tmp_path / "c.toml"
    text = SHAPES[shape]().encode()
    assert len(text) <= LARGEST
    file.write_bytes(text)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    seconds, kilobytes = map(float, done.stdout.split())
    assert seconds < 10 and kilobytes < 200_000
