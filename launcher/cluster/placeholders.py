"""Placeholders such as `{python}` and `{port.worker.0}` in the texts of a cluster file.

`{{` and `}}` are literal braces, and `${…}`, a variable of a shell or of Hydra, stays as it is.
`Names` checks texts before anything is known of the hosts; `expand` replaces placeholders by the
values of a plan. Words of a command line are `typed`: in these only what is a placeholder counts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .file_model import ClusterModel
from .values import nearest, nearest_word

_VARIABLE = r"\$\{(?!\{)(?:[^{}$]|\$(?!\{)|\$?\{[^{}]*\})*\}"
"""`${VAR}`, `${VAR:-${OTHER}}`."""
_TOKEN = re.compile(rf"\{{\{{|\}}\}}|{_VARIABLE}|\{{([^{{}}]*)\}}|[{{}}]")
_LITERAL = {"{{": "{", "}}": "}"}
_NAME = r"[A-Za-z_][A-Za-z0-9_.]*"
_TYPED = re.compile(rf"{_VARIABLE}|\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
_NEAR = re.compile(
    r"(?<![{$])\{ *([A-Za-z_][A-Za-z0-9_.-]*) *(\}(?!\})|[:!][^{}\s]*\}|(?![^{}]*\}))"
)
"""What may have been meant as a placeholder: `{ rank }`, `{rank:02d}`, or `{rank`, which no brace
closes."""
_UNOPENED = re.compile(rf"(?<![-{{\w.])({_NAME})\}}")
_OTHER_NAMES = {
    "job_name": "job",
    "local_world": "local_world_size",
    "master": "master_addr",
    "node": "node_rank",
    "nproc": "local_world_size",
    "nprocs": "world_size",
    "task": "index",
    "task_id": "index",
    "task_index": "index",
    "task_type": "job",
    "world": "world_size",
}
"""Names that other programs have for what some placeholders are."""
_ALIKE = 0.75
"""Likeness from which on a name is taken for a misspelled one."""

RUN_WIDE = frozenset({"name", "run_id"})
"""Placeholders with the same value for every task on every host."""

PLAIN = RUN_WIDE | {
    "python", "job", "index", "host", "port", "address", "ps_hosts", "worker_hosts", "cluster",
    "logdir", "workdir", "trainer", "home",
}  # fmt: skip
RANKED = frozenset(
    "rank world_size local_rank local_world_size node_rank master_addr master_port".split()
)
"""Placeholders of tasks that have a rank, see `ranks`."""
_OF_JOB = ("hosts", "num")
_OF_TASK = ("host", "port", "address")


def nearest_job(word: str, jobs: Iterable[str]) -> str:
    """Writes `did you mean "x"?` for the nearest job, else lists the first jobs."""
    known = list(jobs)
    return nearest(word, known, f"the jobs are {', '.join(known[:10])}")


def expand(text: str, *values: Mapping[str, str]) -> str:
    """Replaces the placeholders; the first mapping that has a name wins.

    Raises:
        KeyError: a placeholder has no value, or a brace has no partner.
    """
    return "".join(expanded(text, *values))


def expanded(text: str, *values: Mapping[str, str]) -> Iterator[str]:
    """Yields the parts of the text that `expand` makes: what stands between placeholders, and
    their values."""
    at = 0
    for match in _TOKEN.finditer(text):
        yield text[at : match.start()]
        yield _plain(match[0]) or _value(match, values)
        at = match.end()
    yield text[at:]


def _plain(token: str) -> str:
    """What stands for a token that is no placeholder; empty for one that is."""
    return token if token.startswith("$") else _LITERAL.get(token, "")


def _value(match: re.Match[str], values: Sequence[Mapping[str, str]]) -> str:
    for mapping in values:
        if (match[1] or "") in mapping:
            return mapping[match[1]]
    raise KeyError(match[0])


def literal(text: str) -> str:
    """Doubles the braces of a text in which nothing is a placeholder."""
    return text.replace("{", "{{").replace("}", "}}")


def typed(word: str) -> str:
    """Makes a text with placeholders of a word of a command line: `{rank}` and the like hold, and
    `{{rank}}` is the text `{rank}`. All other braces stay as they are: JSON, scripts, templates.

    Raises:
        ValueError: the word has a misspelled placeholder.
    """
    parts, at = [], 0
    for match in _TYPED.finditer(word):
        parts.append(literal(word[at : match.start()]))
        name = match[1] or match[2] or ""
        at = match.end()
        near = difflib.get_close_matches(name, (*PLAIN, *RANKED), n=1, cutoff=_ALIKE)
        if match[2] and near and not _is_known(name):
            raise ValueError(
                f"unknown placeholder {{{name}}}: did you mean {{{near[0]}}}? Write {{{{{name}}}}} "
                f"for the text {{{name}}}"
            )
        parts.append(match[0] if near or _is_known(name) else literal(match[0]))
    return "".join((*parts, literal(word[at:])))


def left_over(word: str) -> Iterator[str]:
    """Yields a sentence for each text in a word of a command line that is passed on as it is, and
    may have been meant as a placeholder: beside one that is replaced, or because it is nearly one.
    """
    replaced = [m[0] for m in _TYPED.finditer(word) if m[2] and _is_known(m[2])]
    for match in _NEAR.finditer(_TYPED.sub(_without_known, word)):
        name = meant(match[1])
        if name:
            yield f"{match[0]} is passed on as it is: write {{{name}}} for the placeholder"
        elif replaced and match[2] == "}":
            yield (
                f"{match[0]} is passed on as it is, and {replaced[0]} beside it is replaced: write "
                f"{{{replaced[0]}}} for the text {replaced[0]}"
            )
    for match in _UNOPENED.finditer(word):
        if meant(match[1]):
            yield f"{match[0]} is passed on as it is: write {{{match[0]} for the placeholder"


def _without_known(match: re.Match[str]) -> str:
    return match[0] if match[2] and not _is_known(match[2]) else ""


def meant(name: str) -> str:
    """Finds the placeholder that a name in another spelling means; empty where none is."""
    plain = name.strip().lower().replace("-", "_")
    plain = _OTHER_NAMES.get(plain, plain)
    return plain if plain in PLAIN or plain in RANKED else ""


def _is_known(name: str) -> bool:
    kind, _, rest = name.partition(".")
    return name in PLAIN or name in RANKED or bool(rest and kind in (*_OF_JOB, *_OF_TASK))


def names_in(text: str) -> Iterator[str]:
    """Yields the names of the placeholders in a text."""
    return (match[1] for match in _TOKEN.finditer(text) if match[1] is not None)


def _single(brace: str, text: str, at: int) -> str:
    """Says that a brace has no partner, with the name beside it if that is a placeholder's."""
    pattern = rf"{_NAME}\Z" if brace == "}" else _NAME
    beside = re.search(pattern, text[:at]) if brace == "}" else re.match(pattern, text[at + 1 :])
    name = beside[0] if beside else ""
    if _is_known(name):
        shown = f"{name}}}" if brace == "}" else f"{{{name}"
        wanted = f"{{{name}}}"
        return f"single {brace} in {shown}: write {wanted}, or {{{wanted}}} for the text {wanted}"
    return f"single {brace}: write {brace * 2} for a literal brace"


class Names:
    """The placeholders of one cluster."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._sizes = {name: len(job.tasks) for name, job in cluster.jobs.items()}

    def problems(
        self,
        text: str,
        without: frozenset[str] = frozenset(),
        jobs: bool = True,
        unranked: str = "",
    ) -> Iterator[str]:
        """Checks the placeholders of a text; yields a sentence for each that is wrong.

        `without` are names that are not allowed in this text; names with a job in them are
        allowed only with `jobs`. `unranked` is a job that reads the text and has no ranks.
        """
        for match in _TOKEN.finditer(text):
            if _plain(match[0]):
                continue
            if match[1] is None:
                yield _single(match[0], text, match.start())
            elif problem := self._problem(match[1]):
                yield problem
            elif match[1] in without or ("." in match[1] and not jobs):
                yield f"{match[0]} is not available here: remove it"
            elif match[1] in RANKED and unranked:
                yield (
                    f"{match[0]} is only for tasks that train, and {unranked} has none: "
                    "write it in the table of a job that trains"
                )

    def _problem(self, name: str) -> str | None:
        if name in PLAIN or name in RANKED:
            return None
        kind, *rest = name.split(".")
        if kind in _OF_JOB and len(rest) == 1:
            return self._no_job(name, rest[0])
        if kind in _OF_TASK and len(rest) == 2:
            return self._no_job(name, rest[0]) or self._no_index(name, *rest)
        shown = name if len(name) <= 60 else name[:59] + "…"
        if near := meant(re.split("[:!]", name)[0]):
            return f"{{{shown}}} is no placeholder: did you mean {{{near}}}?"
        if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
            return f"{{{shown}}} is not a placeholder: write {{{{ and }}}} for literal braces"
        known = [*PLAIN, *RANKED, *(f"{kind}.{job}" for kind in _OF_JOB for job in self._sizes)]
        known += [f"{kind}.{job}.0" for kind in _OF_TASK for job in self._sizes]
        near = nearest_word(name, known)
        hint = f"did you mean {{{near}}}?" if near else "write {{ and }} for literal braces"
        return f"unknown placeholder {{{shown}}}: {hint}"

    def _no_job(self, name: str, job: str) -> str | None:
        if job in self._sizes:
            return None
        return f"{{{name[:60]}}}: there is no job {job[:60]}: {nearest_job(job, self._sizes)}"

    def _no_index(self, name: str, job: str, index: str) -> str | None:
        size = self._sizes[job]
        digits = index.isascii() and index.isdecimal()
        if digits and index == str(int(index[:9])) and int(index) < size:
            return None
        last = f"0 to {size - 1}" if size > 1 else "0"
        return f"{{{name[:60]}}}: there is no such task: the indices of {job} are {last}"
