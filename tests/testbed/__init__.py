"""Testbeds: real SSH servers and real processes for the launcher to be tried on.

`namespaces` is four hosts on one machine, each with its own OpenSSH as PID 1; it needs root.
`inprocess` is one asyncssh server on the loopback, for tests that must run anywhere.
`proc` looks at the real `/proc`: what a test claims about processes it sees with its own eyes.
"""

from __future__ import annotations


class TestbedError(Exception):
    """A testbed could not be built or did not do what a test asked of it."""

    __test__ = False
