"""Addresses, destinations and placeholders: what is read, and what is said otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.addresses import (
    SshDestination,
    TaskAddress,
    is_loopback,
    parse_address,
    parse_jump,
)
from launcher.cluster.choices import Success
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.placeholders import expand
from launcher.cluster.readiness import PortListens
from launcher.cluster.values import nearest


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("tf1", None, "tf1", None),
        ("my-alias_2", None, "my-alias_2", None),
        ("root@tf1:22", "root", "tf1", 22),
        ("a.b@corp.example@10.0.0.1", "a.b@corp.example", "10.0.0.1", None),
        ("root@[fd00::1]", "root", "fd00::1", None),
        ("[fe80::1%eth0]:2022", None, "fe80::1%eth0", 2022),
    ],
)
def test_ssh_destinations(text: str, user: str | None, host: str, port: int | None) -> None:
    """Each form is read and written back the same."""
    destination = SshDestination.parse(text)
    assert destination == SshDestination(user, host, port)
    assert str(destination) == text


@pytest.mark.parametrize(
    "text", ["", "@tf1", "root@", "a b@tf1", "tf1:", "tf1:0", "x:1:2", "[fd00::1", "-oProxy=x", "é"]
)
def test_bad_ssh_destinations(text: str) -> None:
    """Each is refused with a sentence."""
    with pytest.raises(ValueError, match=" "):
        SshDestination.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """What is read is written back the same; what is not is refused by `ValueError` alone."""
    for parse in (TaskAddress.parse, SshDestination.parse, parse_address, parse_jump):
        try:
            read = parse(text)
        except ValueError as error:
            assert str(error)
        else:
            again = str(read)
            assert not any(c.isspace() or c in "'\"$;&|<>(){}`" for c in again)
            assert str(parse(again)) == again


def test_jump_hosts() -> None:
    """One or several, in the order of the way."""
    assert parse_jump("a@b:22,c") == "a@b:22,c"
    with pytest.raises(ValueError, match="empty"):
        parse_jump("a,")


@pytest.mark.parametrize(
    "name", ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"]
)
def test_names_that_mean_oneself(name: str) -> None:
    """Whatever a host understands as itself is of no use to another one."""
    assert is_loopback(name)
    assert not is_loopback("localhost1")


@given(st.text(max_size=30))
def test_literal_braces_come_back(text: str) -> None:
    """Any text with its braces doubled expands to itself."""
    assert expand(text.replace("{", "{{").replace("}", "}}")) == text


def test_an_unknown_placeholder_is_never_left_in() -> None:
    """Expanding what was not checked fails instead of handing a brace to a task."""
    for text in ("{x}", "{", "}", "{}"):
        with pytest.raises(KeyError):
            expand(text, {"y": "1"})


def test_the_first_mapping_wins() -> None:
    """A task's own values go before what all tasks share."""
    assert expand("{a}{b}", {"a": "1"}, {"a": "2", "b": "{a}"}) == "1{a}"


def test_the_nearest_word() -> None:
    """A word far from all is answered with something else."""
    assert nearest("wroker", ["ps", "worker"]) == 'did you mean "worker"?'
    assert nearest("x" * 10_000, ["ps"], "no") == "no"


def test_models_made_in_code_are_checked_too() -> None:
    """The editor's values go through the same fields; enums and dataclasses may be given."""
    cluster = ClusterModel.model_validate(
        {
            "name": "n",
            "jobs": {"a": {"tasks": [TaskAddress("localhost", 1)], "ready": PortListens()}},
            "run": {"success": Success.ALL},
        }
    )
    assert cluster.model_dump(mode="json", exclude_unset=True) == {
        "name": "n",
        "jobs": {"a": {"tasks": ["localhost:1"], "ready": "listening"}},
        "run": {"success": "all"},
    }
    assert cluster == ClusterModel.model_validate(cluster.model_dump(mode="json"))
