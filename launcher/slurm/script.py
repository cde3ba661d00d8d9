"""Request for nodes of Slurm: options of `sbatch`, and a batch script that starts an agent on each
node, each in a job step of its own.

One step a node, so that a lost node takes no other step along. `--overlap` lets later steps, the
bridges, use the same cores; `--no-kill` keeps the job when a node is lost, and `--no-requeue`
keeps Slurm from starting a run again that has ended. There is no secret in the script.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ..agent.wire import SLURM_OF_JOB
from ..cluster.file_model import ClusterModel, Slurm, node_name
from ..frozen import frozen
from ..hosts import bootstrap
from ..hosts.bootstrap import LinkSettings
from ..hosts.frames import Rules
from ..plan.run_plan import Plan

UNSET = ("SBATCH_ARRAY_INX", "SBATCH_WAIT")
"""Variables that sbatch must not have: no option of its command line undoes them."""

STEP_SECONDS = 30
"""How long a step in a job of the user's may wait for its turn: srun would try for ever, and start
an agent when the run is over."""

_NOT_PASSED_ON = {*(4, 7, 8, 11, 9, 19), *(15, 17, 18, 20, 21, 22)}
"""Faults of the shell, what nobody can handle, and what is the shell's own."""
_OF_ALL_STEPS = "15 18 20 21 22"
"""TERM, and CONT, TSTP, TTIN and TTOU, with which Slurm suspends jobs: all steps get them beside
the batch script, which waits for the agents."""
_PASSED_ON = " ".join(map(str, sorted({*range(1, 32), *range(34, 65)} - _NOT_PASSED_ON)))
"""What comes to the batch script alone, such as by `--signal=B:USR1@60`."""
_WAIT = """\
status=0
for agent in $agents; do
    ended=127
    while :; do
        interrupted=
        wait "$agent"
        code=$?
        [ "$code" = 127 ] || ended=$code
        [ -n "$interrupted" ] || break
    done
    [ "$ended" = 0 ] || status=$ended
done
exit "$status\""""
"""Waits for the agents. A signal interrupts `wait`, and one more `wait` for the same agent may find
that it has ended (127)."""

_CLEAN = f"""\
slurm=
[ "$SLURM_JOB_ID" != "$job" ] ||
    slurm=$(env | sed -n -e '/^SLURM_JWT/d' -e '/^SLURM_[A-Za-z0-9_]*=/p')
{bootstrap.WITHOUT_JOB}"""
"""Takes the job's variables away from srun, for which most are options: by the `--cpus-per-task` of
a job with several tasks a node a step would get one task's share. The agent has them again
(`agent.start`)."""


@frozen
class JobRequest:
    """Request for nodes as it is made: a command, and the batch script on its standard input."""

    login: str
    """Where the command runs; empty: on this machine."""
    argv: tuple[str, ...]
    script: str


def job_request(table: Slurm, run_id: str, rules: Rules) -> JobRequest:
    """The request of a run. What is tfmux's own is behind `options`: sbatch takes the last value,
    and prefers its command line to its variables, but these to lines of the script."""
    argv = ("sbatch", *table.options, *_own_options(table, run_id))
    if table.login is None:
        return JobRequest("", argv, batch_script(table, run_id, rules))
    unset = (word for name in UNSET for word in ("-u", name))
    login = str(table.login)
    return JobRequest(login, ("env", *unset, *argv), batch_script(table, run_id, rules))


def _own_options(table: Slurm, run_id: str) -> Iterator[str]:
    yield "--parsable"  # first: an option that lacks its value takes this one, and no job id comes
    yield f"--job-name={job_name(run_id)}"
    yield from (f"--nodes={table.nodes}", "--ntasks-per-node=1", f"--time={table.time}")
    if table.partition is not None:
        yield f"--partition={table.partition}"
    if table.gpus:
        yield f"--gpus-per-node={table.gpus}"
    yield from ("--no-requeue", "--no-kill")
    for stream in ("input", "output", "error"):
        yield f"--{stream}=/dev/null"  # a folder that the node lacks would fail the job


def request_of(cluster: ClusterModel, plan: Plan) -> JobRequest | None:
    """The request that a launch makes; None where it makes none of Slurm."""
    if cluster.slurm is None or cluster.slurm.job is not None:
        return None
    return job_request(cluster.slurm, plan.run_id, Rules.of(plan))


def job_name(run_id: str) -> str:
    """Name of a run's job, by which it is found."""
    return f"tfmux-{run_id}"


def batch_script(table: Slurm, run_id: str, rules: Rules) -> str:
    """The script for `sbatch`: it starts an agent on each node and waits for all of them."""
    return "\n".join(_lines(table, run_id, _payload(run_id, rules))) + "\n"


def script_in_job(table: Slurm, run_id: str, rules: Rules, nodes: Mapping[str, str]) -> str:
    """The script for a shell outside of the batch script: it starts the agents on nodes of
    the job of `table` and ends, and the agents stay. Each node has with it all that the job has
    there of GPUs and the like, as `--gres` has it: a step of one task would get one task's
    share."""
    cases = [f"{shlex.quote(name)}) gres={shlex.quote(gres)} ;;" for name, gres in nodes.items()]
    lines = [
        f"job={table.job}",
        *_agents(table, run_id, _payload(run_id, rules), shlex.join(nodes), cases),
    ]
    return "\n".join(lines) + "\n"


def _payload(run_id: str, rules: Rules) -> str:
    settings = LinkSettings(run_id, node_name(0), rules, local=False)
    return bootstrap.engine_payload(settings.engine_config)


def _agents(
    table: Slurm, run_id: str, payload: str, nodes: str, cases: Sequence[str] = ()
) -> Iterator[str]:
    """Lines that start the agents in the background; `nodes` are words of a shell, and by `cases`
    it finds what is to be asked for on a node."""
    tag = shlex.quote(f"TFMUX_AGENT={run_id};")
    python = shlex.join([table.python or "python3", "-IS", "-c", bootstrap.ENGINE_LINE])
    program = f'env {tag} "{SLURM_OF_JOB}=$slurm" {python}'
    step, begin, end = f"--job-name={job_name(run_id)}", "", ""
    if table.job is not None:
        step = f"{step} --immediate={STEP_SECONDS}"
        begin, end = "{ ", "; } >/dev/null 2>&1"  # nobody waits for the steps
    yield f"agent='{payload}'"
    yield _CLEAN
    yield "number=0 agents="
    yield f"for node in {nodes}; do"
    yield f"    gres=; case $node in {' '.join(cases)} esac" if cases else "    gres="
    yield f"    {begin}printf '%s\\n' \"$agent\" |"
    yield '        srun --nodes=1 --ntasks=1 --nodelist="$node" --overlap --mpi=none --quiet \\'
    yield f'            --jobid="$job" {step} --cpu-bind=none ${{gres:+"--gres=$gres"}} \\'
    yield f'            {program} "node$number"{end} &'
    yield '    agents="$agents $!" number=$((number + 1))'
    yield "done"


def _lines(table: Slurm, run_id: str, payload: str) -> Iterator[str]:
    yield "#!/bin/sh"
    yield 'job=$SLURM_JOB_ID nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    yield 'pass_on() { interrupted=1; scancel --signal="$1" "$job" & }'
    yield f'for number in {_PASSED_ON}; do trap "pass_on $number" "$number"; done'
    yield f"trap interrupted=1 {_OF_ALL_STEPS}"
    yield from _agents(table, run_id, payload, "$nodes")
    yield _WAIT
