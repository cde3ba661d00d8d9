"""The embedded data set: 1,797 handwritten digits, so that a first run needs no download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
Learning Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0; the 1,797 images
of its test set as scikit-learn ships them (`sklearn.datasets.load_digits`). They are stored as they
are, 8×8 pixels of 0–16, and only scaled when loaded. `python -m trainer.data.digits` made the file.
"""

import pathlib

import numpy as np
from numpy.typing import NDArray

SIDE = 28
TEST_EVERY = 3
FILE = pathlib.Path(__file__).with_name("digits.npz")


def load() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All images scaled to 28×28, shape (1797, 784), and their labels."""
    with np.load(FILE) as stored:
        small, labels = stored["images"], stored["labels"]
    return enlarge(small, SIDE).reshape(len(labels), SIDE * SIDE), labels


def enlarge(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Square images of 0–16 as `side`×`side` images of 0–255, by bilinear interpolation.

    Pixel centres are aligned as image libraries do it, and the border repeats.
    """
    have = images.shape[1]
    position = np.clip((np.arange(side) + 0.5) * have / side - 0.5, 0, have - 1)
    low = np.minimum(position.astype(int), have - 2)
    weights = np.zeros((side, have), np.float32)
    weights[np.arange(side), low] = 1 - (position - low)
    weights[np.arange(side), low + 1] = position - low
    scaled = weights @ images.astype(np.float32) @ weights.T
    grey: NDArray[np.uint8] = np.rint(np.clip(scaled, 0, 16) * (255 / 16)).astype(np.uint8)
    return grey


if __name__ == "__main__":
    from sklearn.datasets import load_digits  # type: ignore[import-not-found]

    found = load_digits()
    np.savez_compressed(
        FILE, images=found.images.astype(np.uint8), labels=found.target.astype(np.uint8)
    )
