"""Checkpoints: which one a run may go on from, and writing them on the chief's disk.

A checkpoint carries the id of the run that wrote it, as a variable of its own. A restarted task
goes on from its own run's checkpoint; one that another run left in the same directory would end
the training at once or break it, so it is refused unless it is asked for by name.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.errors import CheckpointError, reason

if TYPE_CHECKING:
    from trainer.flags import Options

RUN_ID = "run_id"
STEP = "global_step"
KEEP = 5


class Checkpoints:
    """The checkpoints of one run in one directory.

    Args:
        directory: Where they are; made if missing. None: nothing is read or written.
        run_id: This run; None takes the checkpoints of any.
        resume: Another run whose checkpoint may be taken.
    """

    def __init__(self, directory: str | None, run_id: str | None, resume: str | None) -> None:
        self.directory = pathlib.Path(directory).expanduser() if directory else None
        self.run_id = run_id
        self.resume = resume
        if self.directory:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(f"{self.directory}: {error.strerror}") from None

    @classmethod
    def of(cls, options: Options) -> Checkpoints:
        """From the flags, `TFMUX_RUN_ID` and `TFMUX_RESUME`.

        A run that was started by hand gets an id of its own.
        """
        by_hand = time.strftime("by-hand-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        run_id = os.environ.get("TFMUX_RUN_ID") or by_hand
        resume = options.resume or os.environ.get("TFMUX_RESUME") or None
        return cls(options.logdir, run_id, resume)

    def find(self) -> str | None:
        """The newest checkpoint's path without suffix, None when there is none.

        Raises:
            CheckpointError: It cannot be read, or is another run's that was not asked for.
        """
        if self.directory is None:
            return None
        newest = tf.train.latest_checkpoint(str(self.directory))
        if newest is None:
            if self.resume:
                raise CheckpointError(f"{self.directory}: no checkpoint of run {self.resume}")
            return None
        path = str(newest)
        run_id, step = read(path)
        if self.run_id is not None and run_id not in (self.run_id, self.resume):
            raise CheckpointError(
                f"{path}: written by run {run_id} at global step {step}; this is run "
                f"{self.run_id}: pass --resume {run_id} to go on from it, or another --logdir"
            )
        return path


def read(path: str) -> tuple[str, int]:
    """Run id and global step of the checkpoint at `path`.

    Raises:
        CheckpointError: Unreadable, or not one of the trainer's.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        return reader.get_tensor(RUN_ID).decode(), int(reader.get_tensor(STEP))
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {reason(error)}") from None


class Saver:
    """Saves and restores a graph's `variables` under their names, all by one task: the chief.

    Built inside a device scope of the chief: otherwise TensorFlow puts the file operations where
    the variables are, and each ps keeps its part of the checkpoint on its own disk.
    """

    def __init__(self, checkpoints: Checkpoints, variables: dict[str, Any], device: str) -> None:
        self._checkpoints = checkpoints
        with tf.device(device):
            self._saver = tf.compat.v1.train.Saver(variables, max_to_keep=KEEP)

    def restore(self, session: Any, path: str) -> None:
        """Sets every variable from the checkpoint at `path`.

        Raises:
            CheckpointError: It is broken or belongs to another network.
        """
        try:
            self._saver.restore(session, path)
        except (tf.errors.DataLossError, tf.errors.NotFoundError, ValueError) as error:
            raise CheckpointError(f"{path}: {reason(error)}") from None

    def save(self, session: Any, step: int) -> None:
        """Writes a checkpoint; the last `KEEP` stay.

        Raises:
            CheckpointError: The disk is full or not writable; earlier checkpoints are intact.
        """
        directory = self._checkpoints.directory
        if directory is None:
            return
        prefix = directory / "model.ckpt"
        try:
            self._saver.save(session, str(prefix), global_step=step, write_meta_graph=False)
        except (tf.errors.AbortedError, tf.errors.UnavailableError):
            raise
        except (tf.errors.OpError, OSError, ValueError) as error:
            for part in directory.glob(f"{prefix.name}-{step}.*tempstate*"):
                part.unlink()
            raise CheckpointError(f"{prefix}-{step}: cannot save: {reason(error)}") from None
