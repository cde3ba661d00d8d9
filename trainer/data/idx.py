"""Reads and writes MNIST's own file format, IDX, plain or gzip.

An IDX file is a big-endian magic number (0x0803 for images, 0x0801 for labels), one uint32 per
dimension, then the bytes. See http://yann.lecun.com/exdb/mnist/ for the original description.
"""

import gzip
import math
import pathlib
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from trainer.exceptions import DataError

IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801
CLASSES = 10


def find(directory: pathlib.Path, stem: str) -> pathlib.Path:
    """The file `stem`, plain or with `.gz`; some mirrors write `.idx3` for `-idx3`."""
    other = stem.replace("-idx", ".idx")
    for name in (stem, f"{stem}.gz", other, f"{other}.gz"):
        if (directory / name).is_file():
            return directory / name
    raise DataError(f"{directory}: no {stem} and no {stem}.gz")


def read_images(path: pathlib.Path) -> NDArray[np.uint8]:
    """Images as uint8, shape (count, rows * columns)."""
    images = _read(path, IMAGES_MAGIC, "images")
    return images.reshape(len(images), math.prod(images.shape[1:]))


def read_labels(path: pathlib.Path) -> NDArray[np.uint8]:
    """Labels as uint8, shape (count,), each below `CLASSES`."""
    labels = _read(path, LABELS_MAGIC, "labels")
    if labels.size and labels.max() >= CLASSES:
        at = int(np.argmax(labels >= CLASSES))
        raise DataError(f"{path}: label {labels[at]} of example {at} is not a digit")
    return labels


def write(path: pathlib.Path, array: NDArray[np.uint8]) -> None:
    """Writes labels (one dimension) or images (three), gzipped when the name ends in `.gz`."""
    magic = 0x00000800 | array.ndim
    header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
    content = header + array.tobytes()
    # mtime=0: the same images always give the same file.
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _read(path: pathlib.Path, magic: int, what: str) -> NDArray[np.uint8]:
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: broken or truncated gzip: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    dimensions = magic & 0xFF
    head = 4 * (1 + dimensions)
    found = int.from_bytes(content[:4], "big")
    if len(content) >= 4 and found != magic:
        raise DataError(
            f"{path}: magic number 0x{found:08x} is not that of IDX {what} (0x{magic:08x})"
        )
    if len(content) < head:
        raise DataError(f"{path}: truncated: {len(content)} bytes, the header alone has {head}")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    expected, present = math.prod(shape), len(content) - head
    if present != expected:
        kind = "truncated" if present < expected else "too long"
        raise DataError(
            f"{path}: {kind}: {present} bytes of {what}, the header promises {expected}"
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
