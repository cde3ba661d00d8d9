"""Types of fields of what hosts say and of what is stored: ranges and lengths are checked, and text
is made printable, where a frame comes in and when a record is read again."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from .states import shown

_LAST_TIME = 253402300799.0
"""The end of the year 9999: what comes later cannot be shown as a date."""

Text = Annotated[str, AfterValidator(partial(shown, longest=2000))]
Line = Annotated[str, AfterValidator(partial(shown, longest=1000))]
Code = Annotated[str, AfterValidator(partial(shown, longest=40))]
Time = Annotated[float, Field(ge=0, le=_LAST_TIME)]
"""Seconds since the epoch."""
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Figure = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
Pid = Annotated[int, Field(ge=0, le=1 << 22)]
Attempt = Annotated[int, Field(ge=0, lt=1 << 31)]
Status = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
ExitCode = Annotated[int, Field(ge=0, le=255)]
SignalName = Annotated[str, Field(pattern="^[A-Z0-9]{1,16}$")]
GpuId = Annotated[str, Field(pattern=r"^[A-Za-z0-9/_.\[\] -]{0,200}$")]
"""What `nvidia-smi` calls a UUID, in words where a driver has none."""
