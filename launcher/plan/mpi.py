"""Programs of an MPI library under `framework = "mpi-like"`, which starts no MPI: what the words
and the local files of a plan say of it, and what to write instead."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..cluster.choices import Framework
from ..cluster.file_model import ClusterModel
from ..cluster.ranks import ranks
from ..on_host.linked import mpi_library
from ..quantities import counted
from .foreground import without_prefixes
from .run_plan import Plan, TaskPlan
from .shell import split_python

MPI4PY = "mpi4py"
_IMPORTS = re.compile(rb"^[ \t]*(?:import|from)[ \t]+mpi4py\b", re.MULTILINE)
_SCRIPT_BYTES = 1 << 20
_MOST_HOSTS = 4
_LAUNCHERS = (
    *("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun"),
    *("horovodrun", "srun", "jsrun", "aprun"),
)
"""Programs that start the ranks of an MPI program, on all its hosts."""


def size_of(cluster: ClusterModel) -> int:
    """Number of ranks that an MPI library would not know of; 0 where it is not asked for, or is
    right by chance: one rank alone."""
    if cluster.run.framework is not Framework.MPI_LIKE:
        return 0
    size = len(ranks(cluster))
    return size if size > 1 else 0


def problem(library: str, ranks_known: int) -> str:
    """What happens to a program with this library."""
    return (
        f'uses an MPI library ({library}), which takes no rank from framework = "mpi-like": there '
        f"would be {counted(ranks_known, 'process', 'processes')}, each of them rank 0 of 1"
    )


def advice(cluster: ClusterModel, argv: Sequence[str]) -> str:
    """The command that starts such a program by its own `mpirun`."""
    hosts = Counter(cluster.jobs[t.job].tasks[t.index].host for t in ranks(cluster))
    where = mpi_hosts = ""
    if any(not cluster.is_local(host) for host in hosts):
        first = next(iter(hosts))
        names = [f"{cluster.address(host)}:{count}" for host, count in hosts.items()]
        shown = names[:_MOST_HOSTS] + (["…"] if len(names) > _MOST_HOSTS else [])
        where, mpi_hosts = f"-H {first} ", f"-H {','.join(shown)} "
    words = shlex.join(argv)
    command = words if len(words) <= 60 else f"{words[:59]}…"
    count = sum(hosts.values())
    return f"start it by its own mpirun: tfmux run {where}-- mpirun -n {count} {mpi_hosts}{command}"


def repeated(plan: Plan) -> Iterator[tuple[TaskPlan, str, str]]:
    """Yields the first task of each command that starts MPI by itself, once for each of several
    tasks; what would happen, and what to do."""
    tasks: dict[tuple[str, ...], list[TaskPlan]] = {}
    for task in plan.tasks:
        if task.in_cluster:
            tasks.setdefault(task.argv, []).append(task)
    for argv, having in tasks.items():
        program = next(map(posixpath.basename, without_prefixes(argv)), "")
        if len(having) > 1 and program in _LAUNCHERS:
            problem = (
                f"is {program}, which starts all ranks of an MPI program: {len(having)} tasks "
                "would start it as often, and none knows of the others"
            )
            first = having[0].host
            where = "" if plan.host(first).local else f"-H {first} "
            yield having[0], problem, f"have one task: tfmux run {where}-n 1 -- {program} …"


def found_here(plan: Plan, tasks: Iterable[TaskPlan]) -> Iterator[tuple[TaskPlan, str]]:
    """The first of these tasks of each command that is seen to use an MPI library by its words, or
    by the local file that it runs; and the library. Reads files and runs `ldd`."""
    seen = set()
    for task in tasks:
        if task.in_cluster and task.argv and task.argv not in seen:
            seen.add(task.argv)
            if library := _library(plan, task):
                yield task, library


def _library(plan: Plan, task: TaskPlan) -> str:
    argv = tuple(without_prefixes(task.argv)) or task.argv
    words = split_python(argv) if _is_python(argv[0]) else None
    if words is None:
        path = _local(plan, task, argv[0]) if "/" in argv[0] else None
        if path is None:
            return ""
        return mpi_library(str(path)) or (MPI4PY if _imports(path) else "")
    program = words[1]
    if program[0] in ("-m", "-c"):
        code = program[1] if len(program) > 1 else ""
        named = code.partition(".")[0] == MPI4PY if program[0] == "-m" else False
        return MPI4PY if named or _IMPORTS.search(code.replace(";", "\n").encode()) else ""
    path = _local(plan, task, program[0])
    return MPI4PY if path is not None and _imports(path) else ""


def _imports(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _IMPORTS.search(file.read(_SCRIPT_BYTES)) is not None
    except OSError:
        return False


def _local(plan: Plan, task: TaskPlan, name: str) -> Path | None:
    """The file here that a word names: in the workdir, or on this machine itself."""
    inside = name[len(task.cwd) + 1 :] if name.startswith(f"{task.cwd}/") else name
    if not inside.startswith(("/", "~")) and ".." not in inside.split("/"):
        base = plan.workdir
    else:
        base = Path("/") if plan.host(task.host).local else None
    path = None if base is None else base / inside
    return path if path is not None and path.is_file() else None


def _is_python(name: str) -> bool:
    return posixpath.basename(name).startswith("python")
