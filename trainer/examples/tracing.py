"""Trace of a run: the device that executed each operation, from TensorFlow's own full trace."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def executed(session: Any, fetches: Any, feed: dict[Any, Any] | None = None) -> dict[str, str]:
    """Runs `fetches`; returns the device of each operation of the graph that was executed."""
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    session.run(fetches, feed, options=options, run_metadata=metadata)
    names = {operation.name for operation in session.graph.get_operations()}
    places = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            name = node.node_name.split(":")[0]
            if name in names:
                places[name] = device.device
    return places


def table(places: dict[str, str]) -> str:
    """One line an operation, in the order of their names."""
    width = max(map(len, places), default=0)
    return "\n".join(f"  {name:{width}}  {places[name]}" for name in sorted(places))
