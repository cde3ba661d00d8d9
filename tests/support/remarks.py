"""Remarks as TensorFlow, JAX and the libraries below them print them, and lines that are none."""

from __future__ import annotations

from tests.support.tables import tables

REMARKS = {source: [line for (line,) in rows] for source, rows in tables("remarks.txt").items()}
NO_REMARKS = REMARKS.pop("no remark")
ALL_REMARKS = [line for lines in REMARKS.values() for line in lines]
(ABSL,) = REMARKS["absl"]
ONEDNN, CUDA, CLEANUP = REMARKS["TensorFlow"][:3]
