"""Base of the models of a cluster file's tables."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A table: frozen, without keys that are not known, and quiet about values, which may be
    secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
