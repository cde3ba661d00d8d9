"""Clusters as people write them: what is understood, what is refused, and what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.host_names import missing_hosts, next_like
from launcher.cluster.shorthand import (
    ShorthandError,
    split,
    understand,
)
from tests.support.shorthand_texts import TEXTS, TRIED_AFTERWARDS, TRIED_LAST, Text, shown


@pytest.mark.parametrize(
    "text", (*TEXTS, *TRIED_AFTERWARDS, *TRIED_LAST), ids=lambda text: text.form
)
def test_a_text_is_understood_or_refused(text: Text) -> None:
    """Given a text in the form of another program, when it is read, then its jobs or hosts come
    out, and the sentence says them; or it is refused whole, and the sentence says why."""
    if not text.jobs and not text.hosts:
        with pytest.raises(ShorthandError) as refusal:
            understand(text.text)
        assert text.refused in str(refusal.value)
        assert str(refusal.value).isprintable()
        return
    understood = understand(text.text)
    assert shown(understood) == (text.jobs or text.hosts)
    for part in text.said:
        assert part in understood.sentence
    assert understood.sentence.isprintable()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("--ps_hosts=tf1:2222 --worker_hosts=tf[1-3]:2223", "1 ps and 3 workers on tf1–tf3, ports"),
        ("root@tf[1-4]", "4 hosts, tf1–tf4 as root"),
        ("tf1 slots=2\ntf2 slots=2", "2 hosts, tf1, tf2, 2 slots each"),
        ("me@tf1\ntf2", "2 hosts, me@tf1, tf2"),
        ("localhost", "1 host, this machine"),
        ("torchrun --nproc-per-node=gpu t.py", "this machine; gpu is not a number of tasks: using"),
        (
            '{"workers": ["tf1:1", "tf2:1"], "gpu": ["tf3:1", "tf4:1"], "ps": ["tf5:1"]}',
            "1 ps, 2 workers and 2 of gpu on tf1–tf5",
        ),
        ("tf1 # fast\n# slow\ntf2", "2 hosts, tf1, tf2; 2 lines after # are left out"),
        (
            "\n".join(f"h{n}x" for n in range(30)),
            "30 hosts, h0x, h1x, h2x, h3x, h4x, h5x, h6x, h7x and 22",
        ),
    ],
)
def test_the_sentence(text: str, sentence: str) -> None:
    """Given a text, when it was understood, then one sentence says how many, where, and what was
    left out."""
    assert sentence in understand(text).sentence


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("mpirun -np 2 -H tf1,tf2 -x A python t.py '{}' > log", ("python", "t.py", "{{}}")),
        ("torchrun --nproc_per_node 2 t.py --lr 1", ("{python}", "t.py", "--lr", "1")),
        ("torchrun --nproc_per_node 2 -m pkg.t x", ("{python}", "-m", "pkg.t", "x")),
        (
            "A=1 python3 t.py --ps_hosts=tf1:1 --worker_hosts tf2:1 --job_name=ps --task_index=0 &",
            (
                "{python}", "t.py", "--ps_hosts={ps_hosts}", "--worker_hosts", "{worker_hosts}",
                "--job_name={job}", "--task_index={index}",
            ),
        ),
    ],
)  # fmt: skip
def test_the_command_behind_a_launcher(text: str, command: tuple[str, ...]) -> None:
    """Given a command line with a program, when it is read, then the program is the command, with
    placeholders for what each task gets, and literal braces."""
    assert understand(text).command == command


def test_names_that_are_known_are_hosts() -> None:
    """Given words as of a sentence, when they are names of hosts, then they are taken."""
    with pytest.raises(ShorthandError, match="'alpha' is not a host"):
        understand("alpha beta")
    assert shown(understand("alpha beta", ("alpha", "beta"))) == "alpha*1 beta*1"
    assert shown(understand("alpha, beta")) == "alpha*1 beta*1"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tf1:2222,tf2:2222", ["tf1:2222", "tf2:2222"]),
        (" tf1:2222 ;\n tf2:2222, ", ["tf1:2222", "tf2:2222"]),
        ("tf[1-3]:2222", ["tf1:2222", "tf2:2222", "tf3:2222"]),
        ("tf{1..2}:2222", ["tf1:2222", "tf2:2222"]),
        ("tf[08-10,12]:1", ["tf08:1", "tf09:1", "tf10:1", "tf12:1"]),
        ("tf1:[7-8]", ["tf1:7", "tf1:8"]),
        ("localhost:auto*3", ["localhost:auto"] * 3),
        ("[fd00::1]:2222, [fd00::2]:2222", ["[fd00::1]:2222", "[fd00::2]:2222"]),
        ("['tf1:1', 'tf2:2']", ["tf1:1", "tf2:2"]),
        ('["tf1:1"]', ["tf1:1"]),
        ("", []),
        ("$(reboot) ../.. -x tf1:abc", ["$(reboot)", "../..", "-x", "tf1:abc"]),
    ],
)
def test_a_line_of_tasks(line: str, found: list[str]) -> None:
    """Given a form's line of tasks, when it is split, then what is no task stays for the checks."""
    assert split(line) == found


@pytest.mark.parametrize(
    "line", ["tf[5-1]:1", "tf[1-99999]:1", "tf1:auto*99999", "a[0-99]b[0-99]c*9"]
)
def test_a_line_for_too_many_is_refused(line: str) -> None:
    """Given a line that stands for thousands, when it is split or read, then it is refused."""
    for read in (split, understand):
        with pytest.raises(ShorthandError):
            read(line)


@pytest.mark.parametrize("text", ["{", '{"cluster": 3}', '{"cluster": {"ps": [1]}}', "{" * 10_000])
def test_a_broken_tf_config_is_explained(text: str) -> None:
    """Given a broken TF_CONFIG, when it is read, then the refusal says what one looks like."""
    with pytest.raises(ShorthandError, match=r"TF_CONFIG|not a list"):
        understand(text)


@given(st.text(max_size=60))
def test_any_text_is_understood_or_explained(text: str) -> None:
    """Given any text, when it is read, then nothing but a refusal with a sentence is raised."""
    try:
        assert understand(text).sentence
    except ShorthandError as error:
        assert str(error)


_PIECES = st.sampled_from(
    "tf1 tf2:2222 me@tf3 [1-3] --ps_hosts= WORKER_HOSTS= { } [ ] ( ) \" ' # \\ , ; : = $A ${B} "
    '$( \n slots= TF_CONFIG "cluster": ssh mpirun -H for in done kind: services: ps| *3'.split(" ")
)


@given(st.lists(_PIECES, max_size=25).map(" ".join))
def test_any_pieces_are_understood_or_explained(text: str) -> None:
    """Given pieces of the grammar in any order, when they are read, then they are understood or
    refused."""
    try:
        assert understand(text).sentence
    except ShorthandError as error:
        assert str(error)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "{",
        "{}",
        "[",
        "a=",
        "--ps_hosts=",
        " \n",
        "#a\n",
        "t[1]",
        '{\\"',
        "a ",
        "x='",
        "PS=$A ",
        "job {",
    ],
)
def test_a_long_text_of_one_piece(piece: str) -> None:
    """Given a long text of one piece, when it is read, then it is understood or refused within the
    time that a test of this folder may take."""
    try:
        assert understand("b" + piece * (20_000 // len(piece))).sentence
    except ShorthandError as error:
        assert str(error)


def test_a_text_that_is_too_long() -> None:
    """Given more than a megabyte, when it is read, then it is refused."""
    with pytest.raises(ShorthandError, match="larger than 1 MiB"):
        understand("x" * ((1 << 20) + 1))


def test_missing_hosts_and_the_next_in_a_series() -> None:
    """Given tasks, then localhost is never missing; a series goes on where its number stopped."""
    tasks = {"ps": ["nonsense", "tf1:1", "localhost:auto"], "worker": ["tf2:1", "tf1:2"]}
    assert missing_hosts(tasks, {"tf1": {}}) == ["tf2"]
    assert next_like(["tf1", "tf2"], "tf1") == "tf3"
    assert next_like(["gpu"], "gpu") == "gpu2"
    assert next_like([], "root@10.77.0.9") == "root@10.77.0.10"
