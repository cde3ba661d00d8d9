"""Plugin of pytest that says which tests there are, and what each costs; begins the record anew for
each of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Generator

import faults_record  # type: ignore[import-not-found]  # in the environment of the copy
import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note what a test took, and in which of the suite's parts it is."""
    from tests.support import tiers

    forget = getattr(sys, "_faults_forget_", None)
    if forget is not None:
        forget()
    failed = item.session.testsfailed
    began, before = time.monotonic(), os.times()
    result = yield
    after = os.times()
    name = re.sub(r"@[^@\]]*$", "", item.nodeid)
    line = {
        "test": name,
        "hits": hashlib.sha1(name.encode("utf-8", "surrogateescape")).hexdigest(),
        "part": "test" if tiers.in_part(item, "test") else "prove",
        "passed": item.session.testsfailed == failed,
        "wall": round(time.monotonic() - began, 3),
        "processor": round(sum(after[:4]) - sum(before[:4]), 3),
    }
    with open(f"{faults_record.FOLDER}/tests.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    return result
