"""Version 1 of TensorFlow's interface, as programs of that time import it.

In the script, and in modules beside it, `import tensorflow as tf` gives TensorFlow's own interface
of version 1, `tf.compat.v1`, in graph mode; libraries see TensorFlow as it is. Names of 0.x are
there, too. What was removed and the tutorials use has small stand-ins in `contrib`.
"""

import builtins
import contextlib
import importlib.abc
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow
from tensorflow.python.client import session
from tensorflow.python.ops import rnn
from tensorflow.python.util import tf_stack

from trainer.tf1 import contrib, old_arguments, old_names, old_numpy, placer, sessions

v1 = tensorflow.compat.v1
MODULES = "tensorflow._api.v2.compat.v1"
"""Name below which Python has version 1's modules."""

STOP_GRACE_SECS = 2
"""Instead of 120 at the end of a session: a synchronous chief's queue runner waits for gradients
which nobody sends any more, and only closing the session ends it."""


def install(folder: str) -> None:
    """Makes `import` in modules of the folder as the tutorials know it."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of what is asked of it here
    v1.disable_v2_behavior()
    logger.setLevel(level)
    logger.propagate = False  # once `tf.app.run` has given the root a handler, lines came twice
    with contextlib.suppress(AttributeError):
        del v1.app.flags.FLAGS.log_dir  # absl's own; the tutorials define one
    v1.contrib, v1.examples = contrib.contrib(), contrib.examples()
    v1.nn.seq2seq = contrib.seq2seq()
    old_arguments.install()
    _name_missing()
    placer.install()
    sessions.install()
    old_numpy.give_back()
    _shorten_the_end()
    fetches = session._FetchHandler
    build = fetches.build_results  # no frame of a traceback, as `run` would be
    fetches.build_results = lambda *words: old_numpy.returned(build(*words))
    sys.meta_path.insert(0, _Absent())
    sys.path.insert(0, folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer"]:
        del sys.modules[name]  # many a program of that time has a package of this name
    builtins.__import__ = _import_for(folder, builtins.__import__)


def _shorten_the_end() -> None:
    """Gives threads a short time at the end of a session that ends without them anyway; a program's
    own `stop_grace_period_secs` holds."""
    join = v1.train.Coordinator.join
    default = inspect.signature(join).parameters["stop_grace_period_secs"].default

    def join_soon(
        self: Any,
        threads: Any = None,
        stop_grace_period_secs: float = default,
        ignore_live_threads: bool = False,
    ) -> None:
        if ignore_live_threads and stop_grace_period_secs == default:
            stop_grace_period_secs = STOP_GRACE_SECS
        join(self, threads, stop_grace_period_secs, ignore_live_threads)

    init = v1.train.QueueRunner._init_from_args

    def init_from_args(self: Any, *words: Any, **options: Any) -> None:
        init(self, *words, **options)  # that the session's end cancels it is no error
        self._queue_closed_exception_types += (tensorflow.errors.CancelledError,)

    v1.train.Coordinator.join = join_soon
    v1.train.QueueRunner._init_from_args = init_from_args


@contextlib.contextmanager
def own_frames_hidden() -> Iterator[None]:
    """Leaves frames of this package out where TensorFlow says in which line an operation was
    made."""

    class Filter(tf_stack.StackTraceFilter):  # type: ignore[misc]
        def get_filtered_filenames(self) -> frozenset[str]:
            return ours

    ours = frozenset(frame.filename for frame in traceback.extract_stack())
    with Filter():
        yield


def _name_missing() -> None:
    """Makes version 1's modules find names of 0.x, and say what TensorFlow no longer has."""
    places: dict[str, Any] = {"tf": v1}  # with legacy Keras its own name is another one
    for name, module in sys.modules.items():
        if name.startswith(f"{MODULES}."):
            places[f"tf{name.removeprefix(MODULES)}"] = module
    for place, module in places.items():
        module.__getattr__ = _missing(place)
    rnn.rnn, rnn.bidirectional_rnn = rnn.static_rnn, rnn.static_bidirectional_rnn


def _missing(place: str) -> Any:
    reason = f"is not part of tf1: TensorFlow {tensorflow.__version__} has no such name"

    def missing(name: str) -> Any:
        path = f"{place}.{name}"
        if path in old_names.RENAMED:
            return old_arguments.renamed(path)
        instead = old_names.remedy(path)
        text = f"{path} {reason}" + (f"; {instead}" if instead else "")
        raise AttributeError(text if name[:2] != "__" else name)

    return missing


def _import_for(folder: str, original: Any) -> Any:
    below = os.path.join(folder, "")

    def import_module(
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        module = original(name, globals, locals, fromlist, level)
        if module is not tensorflow:
            return module
        file = str((globals or {}).get("__file__", ""))
        if not file.startswith(below) or "site-packages" in file[len(folder) :]:
            return module
        for each in fromlist or ():
            try:
                getattr(v1, each) if each != "*" else None
            except AttributeError as error:  # Python would hide its text
                raise ImportError(str(error)) from None
        return v1

    return import_module


class _Absent(importlib.abc.MetaPathFinder):
    """Names the parts of TensorFlow 1 that are imported and not here."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.startswith(("tensorflow.contrib.", "tensorflow.examples.")):
            # Without `name=`: `from tensorflow.contrib import slim` would hide the text.
            raise ModuleNotFoundError(contrib.absent(name.replace("tensorflow.", "tf.", 1)))
