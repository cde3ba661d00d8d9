"""Reading of a launcher's frame: which record its body must be."""

from __future__ import annotations

from . import requests, wire
from .fields import FieldError
from .requests import Request

REQUESTS: dict[int, type[Request]] = {
    kind.TYPE: kind
    for kind in (
        requests.Hello,
        requests.Start,
        requests.Beat,
        requests.Kill,
        requests.Leave,
        requests.ReadLog,
        requests.Credit,
        requests.Ports,
        requests.Stats,
        requests.StageManifest,
        requests.StageBuild,
        requests.Collect,
        requests.CollectOpen,
        requests.CollectCredit,
        requests.CollectEnd,
    )
}


def parse_request(frame: wire.Frame) -> Request:
    """The request in a launcher's frame.

    Raises:
        WireError: no launcher sends such a frame.
    """
    name = wire.NAMES[frame.type]
    if frame.type not in REQUESTS and frame.type != wire.PROBE:
        raise wire.WireError(f"unexpected {name}")
    body = frame.json()
    if frame.type == wire.HELLO and body.get("version") != wire.VERSION:
        version = str(body.get("version"))[:20]
        raise wire.WireError(
            f"this agent speaks protocol version {wire.VERSION}, the launcher {version}"
        )
    try:
        if frame.type != wire.PROBE:
            return REQUESTS[frame.type].from_json(body)
        from .probes import PROBES

        kind = body.get("kind")
        if not isinstance(kind, str) or kind not in PROBES:
            raise FieldError("unknown question", "kind")
        return PROBES[kind].from_json(body)
    except FieldError as error:
        raise wire.WireError(f"{name}: {error}") from None
