"""`tf1 SCRIPT ARGUMENTS…`: runs a program of TensorFlow 1's tutorials on today's TensorFlow.

The program gets version 1's `interface`, the devices that version 1's `placer` chose, and what it
uses of NumPy's older releases, `old_numpy`. What is left of Python 2 in it is named with a remedy.
"""

import ast
import importlib.util
import os
import re
import sys
import traceback
import types
from argparse import Namespace
from itertools import pairwise

from trainer.exceptions import TrainerError
from trainer.tf1 import old_names, python2

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
FOLDER = os.path.dirname(__file__)


def run(options: Namespace) -> int:
    """Runs the script as `__main__`; returns its exit status."""
    words = options.words
    script = os.path.abspath(words[0])
    with open(script, "rb") as file:
        source = file.read()
    try:
        tree = ast.parse(source, script)
        code = compile(source, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        _report(error, "")
        return 1
    if level := _log_level(tree):
        os.environ[LOG_LEVEL] = level
    if importlib.util.find_spec("tf_keras"):  # has version 1's layers and cells, Keras 3 has not
        os.environ.setdefault(LEGACY_KERAS, "1")

    from trainer.tf1 import interface  # imports TensorFlow, which reads the level

    interface.install(os.path.dirname(script))
    sys.argv[:] = words
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = script
    try:
        with interface.own_frames_hidden():
            exec(code, vars(main))
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    except TrainerError:
        raise
    except Exception as error:
        _report(error, script)
        return 1
    return 0


def _log_level(tree: ast.Module) -> str:
    """The level that a script writes into `os.environ`, before or after it imports TensorFlow:
    version 1 read it at its first message, today's reads it at its import."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(target := node.targets[0], ast.Subscript)
            and ast.unparse(target).replace('"', "'") == f"os.environ['{LOG_LEVEL}']"
            and isinstance(node.value, ast.Constant)
        ):
            return str(node.value.value)
    return ""


def _hide_own(frames: types.TracebackType) -> None:
    """Takes what runs the script out of a traceback that begins there."""
    shown, last = [frames], frames
    while after := last.tb_next:
        last = after
        if os.path.dirname(after.tb_frame.f_code.co_filename) != FOLDER:
            shown.append(after)
    shown[-1].tb_next = None
    for one, after in pairwise(shown):
        one.tb_next = after


def _report(error: BaseException, script: str) -> None:
    """Prints a traceback that begins in the script, without frames of this package, and what to do
    about it where that is known."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    if frames:
        _hide_own(frames)
    if type(error.__context__) is type(error) and hasattr(error, "node_def"):
        error.__suppress_context__ = True  # TensorFlow's own, without the place in the script
    sys.stdout.flush()
    traceback.print_exception(error.with_traceback(frames))
    hint = python2.hint(error) or old_names.hint(error)
    if re.search(r"is not available with Keras 3\.$|^module 'keras\._tf_keras\.", str(error)):
        hint = f"legacy Keras has it: `pip install tf_keras`, without `{LEGACY_KERAS}=0`"
    if hint:
        print(f"tf1: {hint}", file=sys.stderr)
