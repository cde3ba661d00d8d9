"""The fields of the editor's tables: which key, how it is written, what it is for."""

from __future__ import annotations

from dataclasses import dataclass

from tui.screens.editor.cell_codecs import (
    ENV,
    FLAG,
    NUMBER,
    ORDER,
    READY,
    TASKS,
    TEXT,
    WORDS,
    Kind,
)


@dataclass(frozen=True)
class Field:
    """One key. `path` is below its table; empty for the table's own name."""

    title: str
    path: tuple[str, ...]
    kind: Kind
    about: str
    default: str = ""
    """What holds when the key is not there."""
    choices: tuple[str, ...] = ()
    complete: str = ""
    """What its completion knows besides the choices: `ssh`, `hosts`, `tasks`."""


_YES_NO = ("yes", "no")

HOST = (
    Field("host", (), TEXT, "its name in this file"),
    Field("ssh", ("ssh",), TEXT, "user@host:port, or an alias of ~/.ssh/config", complete="ssh"),
    Field("address", ("address",), TEXT, "what the other hosts call it", "the SSH host name"),
    Field("python", ("python",), TEXT, "for {python} and the agent", "python3"),
    Field("gpus", ("gpus",), NUMBER, "how many it has", "as found"),
    Field("identity", ("identity",), TEXT, "the private key's file", "as ssh does"),
    Field("jump", ("jump",), TEXT, "user@host:port to go through", "as ssh does", complete="ssh"),
    Field("known_hosts", ("known_hosts",), TEXT, "a file of host keys", "as ssh does"),
    Field("env", ("env",), ENV, "NAME=value … for the tasks on this host"),
)

JOB = (
    Field("job", (), TEXT, "ps, worker, chief, evaluator, or any name"),
    Field(
        "tasks",
        ("tasks",),
        TASKS,
        "host:port, … ; tf[1-4]:2222 and tf1:auto*5 stand for many; or a TF_CONFIG",
        complete="tasks",
    ),
    Field("command", ("command",), WORDS, "what each task runs", "the one of the run"),
    Field("env", ("env",), ENV, "NAME=value … for its tasks"),
    Field("gpus", ("gpus",), NUMBER, "GPUs for each task", "its share"),
    Field(
        "ready",
        ("ready",),
        READY,
        "listening, started, log REGEX, or after SECONDS",
        "listening",
        ("listening", "started", "log ", "after "),
    ),
    Field("in cluster", ("in_cluster",), FLAG, "part of the cluster spec", "yes", _YES_NO),
    Field("forward", ("forward",), FLAG, "forward its port to this machine", "no", _YES_NO),
    Field("max restarts", ("max_restarts",), NUMBER, "restarts of each task", "as the run says"),
    Field("setup", ("setup",), TEXT, "a shell line before each task: conda activate tf"),
    Field("data", ("data",), WORDS, "directories to bring to its hosts"),
    Field("collect", ("collect",), WORDS, "directories to bring back at the end"),
    Field("prepare", ("prepare",), WORDS, "commands run once per host"),
    Field("env from", ("env_from",), WORDS, "names of this shell's variables to hand on"),
    Field("pty", ("pty",), FLAG, "give it a terminal", "as the run says", _YES_NO),
    Field("log limit", ("log_limit",), NUMBER, "bytes of log a task", "as the run says"),
)

RUN = (
    Field("name", ("name",), TEXT, "the cluster's name", "the file's"),
    Field("command", ("run", "command"), WORDS, "what tasks run whose job says nothing else"),
    Field("workdir", ("run", "workdir"), TEXT, 'directory to copy to the hosts; "" is none', "."),
    Field("logdir", ("run", "logdir"), TEXT, "on each host", "~/tfmux-logs/{name}/{run_id}"),
    Field("env", ("run", "env"), ENV, "NAME=value … for every task"),
    Field("order", ("start", "order"), ORDER, "ps > worker:0 > worker", "ps > chief > the rest"),
    Field("start timeout", ("start", "timeout"), NUMBER, "seconds until ready", "120"),
    Field("success", ("run", "success"), TEXT, "whose exit 0 counts", "chief", ("chief", "all")),
    Field(
        "on failure",
        ("run", "on_failure"),
        TEXT,
        "when a task fails",
        "stop",
        ("stop", "keep", "restart"),
    ),
    Field("max restarts", ("run", "max_restarts"), NUMBER, "restarts of each task", "3"),
    Field(
        "on disconnect",
        ("run", "on_disconnect"),
        TEXT,
        "when a host loses the launcher",
        "stop",
        ("stop", "keep"),
    ),
    Field("lease", ("run", "lease"), NUMBER, "seconds a host waits for a lost launcher", "600"),
    Field("grace", ("run", "grace"), NUMBER, "seconds between TERM and KILL", "10"),
    Field("finish timeout", ("run", "finish_timeout"), NUMBER, "silent seconds at the end", "60"),
    Field("total steps", ("metrics", "total"), NUMBER, "makes the step a progress bar"),
    Field("metrics", ("metrics", "pattern"), TEXT, r"regex with (?P<step>\d+)", "known forms"),
    Field("exclude", ("run", "exclude"), WORDS, "not to be copied, beside .gitignore"),
    Field("data", ("run", "data"), WORDS, "directories to bring to every host"),
    Field("collect", ("run", "collect"), WORDS, "directories to bring back at the end"),
    Field("prepare", ("run", "prepare"), WORDS, "commands run once per host"),
    Field("setup", ("run", "setup"), TEXT, "a shell line before each task: conda activate tf"),
    Field("env from", ("run", "env_from"), WORDS, "names of this shell's variables to hand on"),
    Field("pty", ("run", "pty"), FLAG, "give tasks a terminal", "no", _YES_NO),
    Field("log limit", ("run", "log_limit"), NUMBER, "bytes of log a task", "10 GiB"),
)
