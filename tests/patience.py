"""How long tests wait for what must come."""

from __future__ import annotations

PATIENCE = 120.0
"""Seconds. Nothing is asserted by it: a machine that is busy with something else needs them, and
whoever asserts a time measures it."""
