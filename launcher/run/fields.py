"""Types of fields that are stored: their ranges are checked when a record is read again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

_LAST_TIME = 253402300799.0
"""The end of the year 9999: what comes later cannot be shown as a date."""

Time = Annotated[float, Field(ge=0, le=_LAST_TIME)]
"""Seconds since the epoch."""
Seconds = Annotated[float, Field(ge=0, le=1e10)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Attempt = Annotated[int, Field(ge=0, lt=1 << 31)]
Status = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
ExitCode = Annotated[int, Field(ge=0, le=255)]
