"""Makes `digits.npz`, the data set that is used when no `--data` is given.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
Learning Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0; the 1,797 images
of its test set as scikit-learn ships them (`sklearn.datasets.load_digits`). The images are
stored as they are (8×8 pixels of 0–16) and only scaled when loaded.

Run once, where scikit-learn is installed: `python -m trainer.data.make_digits`.
"""

from __future__ import annotations

import pathlib

import numpy as np


def main() -> None:
    """Writes `digits.npz` beside this file."""
    from sklearn.datasets import load_digits  # type: ignore[import-not-found]

    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    path = pathlib.Path(__file__).with_name("digits.npz")
    np.savez_compressed(path, images=images, labels=labels)
    print(f"{path}: {len(labels)} images, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
