"""Checks of texts with the addresses of many tasks against what Linux takes: a program is not
started with a word or a variable of 128 KiB or more (`MAX_ARG_STRLEN`)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .addresses import join
from .checks import Violation
from .choices import Framework
from .key_lines import KeyPath
from .placeholders import names_in
from .spec import ClusterModel, Job, RunSettings

LONGEST = 128 * 1024 - 1
"""Bytes of a word, or of a variable with its name and `=`."""
_ANY_PORT = 65535


def too_long(cluster: ClusterModel) -> Iterator[Violation]:
    """Finds `TF_CONFIG`, words of commands and variables that become too long."""
    places = {
        job: [join(cluster.address(p.host), p.port or _ANY_PORT) for p in entry.tasks]
        for job, entry in cluster.jobs.items()
    }
    spec = {job: named for job, named in places.items() if cluster.in_spec(job)}
    lengths = {f"hosts.{job}": len(",".join(named)) for job, named in places.items()}
    lengths |= {f"{job}_hosts": lengths.get(f"hosts.{job}", 0) for job in ("ps", "worker")}
    lengths["cluster"] = len(json.dumps(spec))
    if cluster.run.framework is Framework.TENSORFLOW and spec:
        largest = max(spec, key=lambda job: len(spec[job]))
        task = {"type": largest, "index": len(spec[largest]) - 1}
        size = len("TF_CONFIG=") + len(json.dumps({"cluster": "", "task": task}))
        size += lengths["cluster"] - len('""')
        if size > LONGEST:
            count = sum(map(len, spec.values()))
            message = f"TF_CONFIG with the addresses of {count} tasks has {size} bytes, and Linux "
            message += f'takes {LONGEST}: write framework = "none" in [run] if no program reads '
            message += "it, or in_cluster = false for jobs whose addresses the others do not need"
            yield Violation(("jobs", largest, "tasks"), None, message)
    for path, text in _texts(cluster):
        size = len(text.encode()) + sum(lengths.get(name, 0) for name in names_in(text))
        if size > LONGEST:
            message = f"it has {size} bytes with all addresses in it, and Linux takes {LONGEST}: "
            message += "let the program read addresses from a file, or name fewer tasks"
            yield Violation(path, text, message)


def _texts(cluster: ClusterModel) -> Iterator[tuple[KeyPath, str]]:
    tables: list[tuple[KeyPath, RunSettings | Job]] = [(("run",), cluster.run)]
    tables += [(("jobs", name), job) for name, job in cluster.jobs.items()]
    for at, table in tables:
        yield from (((*at, "command", i), word) for i, word in enumerate(table.command or ()))
        yield from (((*at, "env", name), value) for name, value in table.env.items())
    for host, entry in cluster.hosts.items():
        yield from ((("hosts", host, "env", name), value) for name, value in entry.env.items())
