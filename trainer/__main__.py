"""`python -m trainer MODE …`: reads the flags, runs the mode, turns its failure into one line.

`python FOLDER MODE …`, with this folder, is the same but for one thing: the working directory is
not looked at, so no `trainer/` or `queue.py` that lies there takes the place of ours.
"""

import io
import os
import sys
import traceback

if not __package__:  # a folder was run: its modules belong to `trainer` all the same
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from trainer import flags, modes
from trainer.exceptions import TrainerError, reason


def main() -> None:
    """Runs a mode and ends the process.

    Exit status: 0 done, 1 failed, 2 wrong flags, 130 and 143 ended by INT and TERM.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # whoever follows the log sees each line
    try:
        status = modes.run(*flags.parse(sys.argv[1:]))
    except TrainerError as error:
        status = error.exit_status
        print(f"trainer: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
    except SystemExit as error:
        status = int(error.code or 0)
    except Exception as error:
        status = 1
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow and isinstance(error, tensorflow.errors.OpError):
            print(f"trainer: {type(error).__name__}: {reason(error)}", file=sys.stderr)
        else:
            traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # A TensorFlow server cannot be shut down: its destructor may wait for sessions of tasks that
    # have already left, and the process would hang at its very end.
    os._exit(status)


if __name__ == "__main__":
    main()
