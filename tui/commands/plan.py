"""`tfmux plan`: the steps of a launch in their order, printed without a launch; `tfmux schema`: the
JSON Schema of the cluster file, for text editors."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from launcher.cluster.reference import schema_text
from launcher.errors import TfmuxError
from launcher.files.needed import left_out_command
from launcher.files.trees import CopiedFiles
from launcher.frozen import frozen
from launcher.hosts.other_names import read_other_names, unusable_name
from launcher.ids import new_run_id
from launcher.masking import masked_variables, masked_words
from launcher.plan.foreground import background_problem
from launcher.plan.plan_record import plan_json, plan_schema
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.plan.shell_text import hook_texts, shell_texts
from launcher.printable import pictured
from launcher.quantities import counted, size, span
from launcher.slurm.script import JobRequest, request_of
from tui import streams
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit
from tui.format import request_text


def output_schema() -> dict[str, Any]:
    """The JSON Schema of `tfmux plan --json`."""
    made = plan_schema()
    slurm = TypeAdapter(JobRequest).json_schema(mode="serialization")
    files = TypeAdapter(list[FilesRecord]).json_schema(mode="serialization")
    made["$defs"] = {**made.get("$defs", {}), **files.pop("$defs", {})}
    made["properties"]["files"] = files
    made["properties"]["slurm"] = slurm | {"description": f"with `[slurm]`: {slurm['description']}"}
    return made


def plan(arguments: argparse.Namespace) -> int:
    """Prints the plan of a cluster file, without what looks like a secret; starts nothing. A
    terminal gets pictures of what it would act on: the file may come from elsewhere.

    ``--json``: one object, as `output_schema` says.
    """
    cluster, _ = read_cluster(arguments)
    names = asyncio.run(read_other_names(cluster))
    cluster = cluster.with_addresses(names.addresses)
    planned = make_plan(cluster, new_run_id(cluster.name))
    for task in planned.tasks:
        if task.in_cluster and (problem := background_problem(task.argv)):
            streams.message(f"{task.id}: {problem}")
    for found in planned.endless():
        streams.message(f"{found.text}: {found.todo}")
    texts = (*shell_texts(cluster), *(text for _, text in hook_texts(cluster)))
    for text in dict.fromkeys(texts):
        streams.message(f"{text.what}: {text.todo}")
    for host, name in names.unusable.items():
        streams.message(f"{unusable_name(host, name)}")
    answer, request = plan_json(planned), request_of(cluster, planned)
    files = asyncio.run(_copied(planned))
    for task in answer["tasks"]:
        task |= {"argv": masked_words(task["argv"]), "env": masked_variables(task["env"])}
    answer["files"] = [asdict(each) for each in files]
    if arguments.json:
        if request is not None:
            answer["slurm"] = asdict(request)
        streams.write_json(answer)
        return Exit.SUCCESS
    screen = sys.stdout.isatty()
    named = (
        f"{host} is {name} to the other hosts (HostName in ssh_config)"
        for host, name in names.addresses.items()
    )
    lines = chain(
        _lines(answer), [planned.ending.text], _lease_lines(planned), named, _files_lines(files)
    )
    if request is not None:
        lines = chain(lines, ["", *request_text(request).splitlines()])
    streams.write((pictured(line) if screen else line) + "\n" for line in lines)
    return Exit.SUCCESS


@frozen
class FilesRecord:
    """What a launch copies to a host, before the host is asked what it has."""

    host: str
    files: int
    bytes: int
    left_out: Annotated[tuple[str, ...], Field(description="links that are not copied, and why")]
    refused: Annotated[str, Field(description="why a launch would be refused; empty: it would not")]
    notes: Annotated[
        tuple[str, ...], Field(description="repositories of which git does not say what it ignores")
    ] = ()


async def _copied(planned: Plan) -> list[FilesRecord]:
    """What is copied to each host that gets a copy."""
    copied, found = CopiedFiles(planned), []
    for host in planned.hosts:
        if not planned.copies(host):
            continue
        try:
            files = await copied.of(host)
        except TfmuxError as error:
            found.append(FilesRecord(host.name, 0, 0, (), str(error)))
            continue
        why = await asyncio.to_thread(left_out_command, planned, host, files)
        links = tuple(f"{link.path} is {link.why}" for link in files.left_out)
        found.append(FilesRecord(host.name, files.files, files.bytes, links, why, files.notes))
    return found


def _lease_lines(planned: Plan) -> Iterable[str]:
    """How long hosts wait, where the file says that of a run with a screen alone."""
    settings = planned.settings
    written = "lease" in settings.model_fields_set and settings.detached_lease is None
    far = any(not host.local for host in planned.hosts)
    if far and written and settings.background_lease != settings.lease:
        shown, left = span(settings.lease), span(settings.background_lease)
        yield (
            f"without this machine hosts wait {shown} while a screen shows the run, and {left} "
            "once it is detached from: `detached_lease` changes that"
        )


def _files_lines(records: Iterable[FilesRecord]) -> Iterable[str]:
    """Hosts that get the same, in one line."""
    hosts: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for each in records:
        text = each.refused or f"{counted(each.files, 'file')}, {size(each.bytes)}"
        hosts.setdefault((text, each.left_out, each.notes), []).append(each.host)
    for (text, links, notes), names in hosts.items():
        yield f"copied to {', '.join(names)}: {text}"
        yield from (f"  not copied: {link}" for link in links)
        yield from (f"  {note}" for note in notes)


def schema(arguments: argparse.Namespace) -> int:
    """Prints the schema that new cluster files name in their `#:schema` line."""
    sys.stdout.write(schema_text())
    return Exit.SUCCESS


def _lines(answer: dict[str, Any]) -> Iterable[str]:
    """The plan as text. An argument or a value may have several lines."""
    tasks = {task["task"]: task for task in answer["tasks"]}
    for number, stage in enumerate(answer["stages"], 1):
        yield f"stage {number}: {', '.join(stage)}"
        for name in stage:
            task = tasks[name]
            yield f"  {name} on {task['host']} ({task['address']})"
            yield f"    ready:   {json.dumps(task['ready'])}"
            yield from f"    command: {shlex.join(task['argv'])}".split("\n")
            if task["warm"]:
                yield f"    warm:    {', '.join(task['warm'])}"
            yield f"    in:      {task['cwd']}"
            for key, value in task["env"].items():
                yield from f"    {key}={shlex.quote(value)}".split("\n")
