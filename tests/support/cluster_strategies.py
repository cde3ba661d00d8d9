"""Clusters for property tests: any that is valid, as the tables of its file."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_WORD = st.text("abcdefgXYZ019", min_size=1, max_size=6)
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="{}\0"), max_size=20
)  # braces are placeholders
_BRACES = st.sampled_from(
    ["{python}", "{{", "}}", "{job}", "{index}", "{host}", "{port}", "{address}", "{ps_hosts}",
     "{worker_hosts}", "{cluster}", "{run_id}", "{logdir}", "{workdir}", "{name}"]
)  # fmt: skip
_WORDS = st.lists(st.one_of(_TEXT, _BRACES), max_size=4).map("".join)
_ENV = st.dictionaries(
    st.from_regex(r"\A[A-Z_][A-Z0-9_]{0,8}\Z").filter(
        lambda n: not n.startswith("TFMUX_") and n != "TF_CONFIG"
    ),
    st.one_of(_WORDS, st.integers(-5, 5)),
    max_size=2,
)
_COMMAND = st.tuples(_WORDS.filter(lambda w: w.strip() != ""), st.lists(_WORDS, max_size=3)).map(
    lambda parts: [parts[0], *parts[1]]
)
_READY = st.one_of(
    st.sampled_from(["listening", "started"]),
    st.floats(0, 1e6).map(lambda s: {"after": s}),
    st.sampled_from([r"step \d+", "☃"]).map(lambda p: {"log": p}),  # a table of one's own: one
    # that tests share was changed by one of them
)
_RUN = {
    "env": _ENV,
    "logdir": st.sampled_from(["/x/{run_id}", "~/l/{name}/{job}-{index}", "~"]),
    "workdir": st.sampled_from(["", ".", "code/{name}", "../x"]),
    "success": st.sampled_from(["chief", "all"]),
    "on_failure": st.sampled_from(["stop", "keep", "restart", "restart-all"]),
    "on_disconnect": st.sampled_from(["stop", "keep"]),
    "on_hangup": st.sampled_from(["kill", "detach"]),
    "lease": st.one_of(st.integers(1, 10_000), st.floats(1, 1e6)),
    "grace": st.integers(0, 100),
    "max_restarts": st.integers(0, 9),
    "setup": _TEXT,
    "env_from": st.lists(_WORD.filter(lambda w: w[0].isalpha()), max_size=2),
    "pty": st.booleans(),
    "log_limit": st.integers(1, 2**40),
    "stop": st.sampled_from(["all", "first"]),
    "stop_signal": st.sampled_from(["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"]),
}
_HOST = {
    "env": _ENV,
    "python": st.sampled_from(["python3", "/p/python", "~/v/python"]),
    "user": st.sampled_from(["root", "me.too"]),
    "jump": st.sampled_from(["gate", "me@a:22,b"]),
    "identity": st.sampled_from(["~/.ssh/id", "key file"]),
    "setup": _TEXT,
    "shell": st.sampled_from(["none", "login"]),
}


@st.composite
def cluster_tables(draw: st.DrawFn) -> dict[str, Any]:
    """The tables of a valid cluster file, with hosts, jobs, an order and settings of any kind."""
    hosts = draw(st.lists(_WORD, unique_by=str.lower, min_size=0, max_size=4))
    names = draw(
        st.lists(
            st.sampled_from(["ps", "worker", "chief", "evaluator", "local", "board"]),
            unique=True,
            min_size=1,
        )
    )
    used: dict[str, set[int]] = {}
    jobs = {name: draw(_job(name, hosts or ["localhost"], used)) for name in names}
    run = draw(st.fixed_dictionaries({"command": _COMMAND}, optional=_RUN))
    tables: dict[str, Any] = {"name": "a" + draw(_WORD), "jobs": jobs, "run": run}
    if hosts:
        tables["hosts"] = {host: draw(_host(host)) for host in hosts}
        if draw(st.booleans()):
            tables["defaults"] = {"host": draw(st.fixed_dictionaries({}, optional=_HOST))}
    if draw(st.booleans()):
        tables["start"] = draw(_start(jobs))
    return tables


@st.composite
def _job(draw: st.DrawFn, name: str, hosts: list[str], used: dict[str, set[int]]) -> Any:
    tasks = []
    for _ in range(draw(st.integers(1, 1 if name == "chief" else 4))):
        host = draw(st.sampled_from(hosts))
        taken = used.setdefault(host, set())
        port = draw(st.one_of(st.just(0), st.integers(1, 65535)))
        if port in taken:
            port = 0
        if port:
            taken.add(port)
        tasks.append(f"{host}:{port or 'auto'}")
    job: dict[str, Any] = {"tasks": tasks}
    if name == "board":
        job["in_cluster"] = False
    optional = {"command": _COMMAND, "env": _ENV, "gpus": st.integers(0, 3), "ready": _READY}
    return job | draw(st.fixed_dictionaries({}, optional=optional))


@st.composite
def _host(draw: st.DrawFn, name: str) -> Any:
    user = draw(st.sampled_from(["", "root@", "me.too@"]))
    port = draw(st.sampled_from(["", ":22", ":2201"]))
    return {"ssh": f"{user}{name}{port}"} | draw(st.fixed_dictionaries({}, optional=_HOST))


@st.composite
def _start(draw: st.DrawFn, jobs: dict[str, Any]) -> Any:
    tasks = [f"{name}:{index}" for name, job in jobs.items() for index in range(len(job["tasks"]))]
    entries = draw(st.lists(st.sampled_from([*jobs, *tasks]), unique=True))
    cuts = draw(st.lists(st.integers(0, len(entries)), max_size=3).map(sorted))
    order = [entries[a:b] for a, b in zip([0, *cuts], [*cuts, len(entries)], strict=True)]
    return {"order": order, "timeout": draw(st.integers(0, 500))}
