"""Task lists as people have them at hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.shorthand import (
    ShorthandError,
    entries,
    hosts,
    missing_hosts,
    next_like,
    spec,
)

CLUSTER = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tf1:2222,tf2:2222", ["tf1:2222", "tf2:2222"]),
        (" tf1:2222 ;\n tf2:2222, ", ["tf1:2222", "tf2:2222"]),
        ("tf[1-3]:2222", ["tf1:2222", "tf2:2222", "tf3:2222"]),
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
    """Commas, blanks, ranges and counts; what is no task stays for the checks to explain."""
    assert entries(line) == found


@pytest.mark.parametrize(
    "line", ["tf[5-1]:1", "tf[1-99999]:1", "tf1:auto*99999", "a[0-99]b[0-99]c*9"]
)
def test_a_line_for_too_many_is_refused(line: str) -> None:
    """No line makes the screen stand still."""
    with pytest.raises(ShorthandError):
        entries(line)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}),
        json.dumps({"cluster": CLUSTER}, indent=2),
        json.dumps(CLUSTER),
        str(CLUSTER),
        f"export TF_CONFIG='{json.dumps({'cluster': CLUSTER})}'",
        "ps=tf1:2222 worker=tf2:2222,tf3:2222",
        "ps=tf1:2222; worker=tf[2-3]:2222",
        "--ps_hosts=tf1:2222 --worker_hosts=tf2:2222,tf3:2222",
        "--ps_hosts tf1:2222 --worker_hosts tf2:2222, tf3:2222",
        "python train.py --ps_hosts=tf1:2222 --worker_hosts='tf2:2222,tf3:2222' --job_name=ps",
        '--job_name=worker --task_index=0 --ps_hosts=tf1:2222 --worker_hosts="tf[2-3]:2222" -v',
    ],
)
def test_a_cluster_spec_in_any_form(text: str) -> None:
    """TF_CONFIG with and without a task, a Python dictionary, a line of jobs, a script's flags."""
    assert spec(text) == CLUSTER


def test_a_sparse_cluster_and_an_evaluator() -> None:
    """Indices are left out, the evaluator's own task becomes one."""
    text = {"cluster": {"worker": {"0": "a:1", "3": "b:1"}}, "task": {"type": "evaluator"}}
    assert spec(json.dumps(text)) == {"worker": ["a:1", "b:1"], "evaluator": ["localhost:auto"]}


def test_a_plain_list_names_no_jobs() -> None:
    """Then it belongs to the job that it is pasted into."""
    assert spec("tf1:2222,tf2:2222") is None


@pytest.mark.parametrize("text", ["{", '{"cluster": 3}', '{"cluster": {"ps": [1]}}', "{" * 10_000])
def test_a_broken_tf_config_is_explained(text: str) -> None:
    """The error says what a TF_CONFIG looks like."""
    with pytest.raises(ShorthandError, match=r"TF_CONFIG|not a list"):
        spec(text)


@given(st.text(max_size=60))
def test_any_text_is_taken_apart_or_explained(text: str) -> None:
    """Nothing else is ever raised."""
    for take in (entries, spec, hosts):
        try:
            take(text)
        except ShorthandError as error:
            assert str(error)


def test_hosts_of_a_line() -> None:
    """Names follow the destinations; addresses get numbered ones; doubles stay apart."""
    assert hosts("root@tf[1-2] gpu:2200") == {
        "tf1": "root@tf1",
        "tf2": "root@tf2",
        "gpu": "gpu:2200",
    }
    assert hosts("me@10.0.0.1 [fd00::1]:22") == {"host1": "me@10.0.0.1", "host2": "[fd00::1]:22"}
    assert hosts("tf1 root@tf1") == {"tf1": "tf1", "tf11": "root@tf1"}
    assert hosts("$(reboot)") == {"$(reboot)": "$(reboot)"}, "the checks explain it"


def test_missing_hosts_and_the_next_in_a_series() -> None:
    """localhost is never missing; a number goes on where it stopped."""
    tasks = {"ps": ["nonsense", "tf1:1", "localhost:auto"], "worker": ["tf2:1", "tf1:2"]}
    assert missing_hosts(tasks, {"tf1": {}}) == ["tf2"]
    assert next_like(["tf1", "tf2"], "tf1") == "tf3"
    assert next_like(["gpu"], "gpu") == "gpu2"
    assert next_like([], "root@10.77.0.9") == "root@10.77.0.10"
