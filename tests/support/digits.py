"""Digits in files, as MNIST has them."""

from __future__ import annotations

import pathlib

from trainer.data import digits, idx


def example_directory(directory: pathlib.Path, suffix: str = "") -> pathlib.Path:
    """Some of the embedded digits as an IDX directory."""
    directory.mkdir(exist_ok=True)
    images, labels = digits.load()
    for stem, part in (("train", slice(0, 50)), ("t10k", slice(50, 70))):
        pixels = images[part].reshape(-1, 28, 28)
        idx.write(directory / f"{stem}-images-idx3-ubyte{suffix}", pixels)
        idx.write(directory / f"{stem}-labels-idx1-ubyte{suffix}", labels[part])
    return directory
