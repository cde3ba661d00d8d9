"""How long tests wait for what must come."""

from __future__ import annotations

PATIENCE = 120.0
"""Seconds. Nothing is asserted by it: a machine that is busy with something else needs them, and
whoever asserts a time measures it."""

SOON = 40.0
"""The same where something else does it later, such as a lease of 60 s that ends."""
