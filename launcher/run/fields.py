"""Types of fields of what hosts say and of what is stored: ranges and lengths are checked, and text
is made printable, where a frame comes in and when a record is read again."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ..printable import printable

_LAST_TIME = 253402300799.0
"""The end of the year 9999: what comes later cannot be shown as a date."""


def _shown(longest: int) -> AfterValidator:
    """Makes text for a person printable, and cuts it."""

    def made(text: str) -> str:
        fits = len(text) <= longest and text.isprintable()  # as almost all that comes
        return text if fits else printable(text, longest)

    return AfterValidator(made)


Text = Annotated[str, _shown(2000)]
Line = Annotated[str, _shown(1000)]
Code = Annotated[str, _shown(40)]
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
GpuId = Annotated[str, Field(pattern=r"\A[A-Za-z0-9/_.\[\] -]{0,200}\z")]
"""What `nvidia-smi` calls a UUID, in words where a driver has none."""
