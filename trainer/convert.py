"""`convert`: digits from IDX to TFRecord files and back, checked by reading them again."""

import pathlib
import shutil
from argparse import Namespace

import numpy as np

from trainer import data
from trainer.data import Split, idx, tfrecord
from trainer.exceptions import DataError

STEMS = {"idx": ("train", "t10k"), "tfrecord": ("train", "test")}


def run(options: Namespace) -> int:
    """Writes `--data` to `--to` in the other format."""
    source = data.load(options.data, in_memory=True)
    target = pathlib.Path(options.to).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
        for split, stem in zip((source.train, source.test), STEMS[options.format], strict=True):
            _write(target, stem, split, options)
    except OSError as error:
        raise DataError(f"{error.filename or target}: {error.strerror or error}") from None
    copy = data.load(str(target), in_memory=True)
    for mine, theirs in ((source.train, copy.train), (source.test, copy.test)):
        if _sorted(mine) != _sorted(theirs):
            raise DataError(f"{target}: the files written differ from the data set")
    print(
        f"{target}: {len(copy.train)} training and {len(copy.test)} test images from {source.name}"
    )
    return 0


def _write(target: pathlib.Path, stem: str, split: Split, options: Namespace) -> None:
    names = (f"{stem}-*", f"{stem}.tfrecord*", *([tfrecord.OUTPUT] if stem == "train" else []))
    if there := sorted(path for name in names for path in target.glob(name)):
        raise DataError(f"{there[0]}: already exists; give an empty directory")
    if options.format == "tfrecord":
        if options.names == "shards":
            tfrecord.write(target, stem, split, options.shards)
            return
        path = tfrecord.write_one(target, stem, split)
        if stem == "train":  # some tutorials call it so
            shutil.copyfile(path, target / tfrecord.OUTPUT)
    else:
        images = split.images.reshape(-1, data.SIDE, data.SIDE)
        idx.write(target / f"{stem}-images-idx3-ubyte.gz", images)
        idx.write(target / f"{stem}-labels-idx1-ubyte.gz", split.labels)


def _sorted(split: Split) -> list[bytes]:
    """Each example's bytes; sharding changes their order."""
    return sorted(row.tobytes() for row in np.column_stack([split.labels, split.images]))
