"""Words before a task's program: the shells for `setup` lines and the login, and the warm start.

Each shell becomes the next one by `exec`, so that in the end the task is the process that the agent
has started: nothing stays between them that a signal could end instead.

In a warm start a Python task's interpreter imports modules while it waits for its stage. The
command is taken apart as `python` itself does it, and put together with the runner in front of the
program: the interpreter keeps its options, the program its arguments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from ..agent.executables import SHELL_FILE
from ..cluster.choices import Shell
from ..frozen import frozen
from .environment import EXTENDED, NO_PROXY_HOSTS, PROXIES

RESTORED = "TFMUX_EXPORTS"
"""Variable with the assignments that are repeated behind the files of a login shell."""
_OURS = ("TF_CONFIG", "TFMUX_RUN_ID", "TFMUX_RESUME", "TFMUX_TASK", NO_PROXY_HOSTS)
"""Variables that no start-up file sets; their values may be long."""
_ANY_PROXY = "".join(f"${{{name}-}}" for name in PROXIES)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Arguments: the lines of `setup`, then the task's words. In a function `setup` sees none of these:
# a file that it sources would take them for its own (conda's `activate` does). `set -e` ends at
# the line that fails; without the trap its reason would be an exit status alone. In zsh an error in
# a function forgets the trap, unless told to follow POSIX.
_SETUP = f"""\
eval "${{{RESTORED}-}}"; unset {RESTORED}
tfmux_file=${{{SHELL_FILE}-}}; unset {SHELL_FILE}
[ -z "${{ZSH_VERSION-}}" ] || setopt posix_traps
trap 'tfmux_status=$?
  echo "tfmux: setup failed with exit status $tfmux_status: the task was not started" >&2
  [ "$tfmux_status" -ne 0 ] || exit 1' EXIT
set -e
eval "tfmux_setup() {{ :
$1
}}"
shift
tfmux_setup
set +e
trap - EXIT
unset -f tfmux_setup
if [ -n "${{{NO_PROXY_HOSTS}-}}" ]; then
  if [ -n "{_ANY_PROXY}" ]; then
    no_proxy="${{no_proxy:-${{NO_PROXY-}}}}"
    no_proxy="${{no_proxy:+$no_proxy,}}${NO_PROXY_HOSTS}"
    NO_PROXY=$no_proxy
    export no_proxy NO_PROXY
    [ -z "${{no_grpc_proxy-}}" ] || export no_grpc_proxy="$no_grpc_proxy,${NO_PROXY_HOSTS}"
  fi
  unset {NO_PROXY_HOSTS}
fi
"""
# Where the program does not start, its directory and PATH are known only here.
_TELL = """\
[ -z "$tfmux_file" ] || { printf '%s\\0%s' "$PWD" "${PATH-}" >|"$tfmux_file"; } 2>/dev/null || :
unset tfmux_file
"""
_TASK = _TELL + 'exec "$@"\n'
# The input of a task that waits for its stage is for its program alone.
_WITHOUT_INPUT = "exec 3<&0 </dev/null\n"
_TASK_WITH_INPUT = _TELL + 'exec "$@" <&3 3<&-\n'

# Arguments: the script above, then its own. The name of the login shell says which language it
# speaks. csh knows no -l beside -c, and drops empty words of $argv: its files are sourced as a
# login does it, and the words cross it in a variable, quoted for the /bin/sh behind it.
# A start-up file with `exec bash` or `exit 0` ends a login shell with status 0 before our script,
# and nobody behind it could say so: the shell runs once before, as a child, with a script that
# gives a status of its own.
_LOGIN = r"""
tfmux_shell=${SHELL:-$(getent passwd "$(id -u)" | cut -d: -f7)}
tfmux_shell=${tfmux_shell:-/bin/sh}
tfmux_quoted() {
  for tfmux_word do
    printf '%s\n' "$tfmux_word" | sed "s/'/'\\\\''/g; 1s/^/'/; \$s/\$/' \\\\/"
  done
  echo ' '
}
tfmux_login() {
  case ${tfmux_shell##*/} in
    csh|tcsh)
      TFMUX_WORDS=$(tfmux_quoted "$@")
      TFMUX_BEHIND='
        eval "set -- $TFMUX_WORDS"; unset TFMUX_WORDS TFMUX_BEHIND; exec /bin/sh -c "$@"'
      export TFMUX_WORDS TFMUX_BEHIND
      exec "$tfmux_shell" -c '
        if (-r /etc/csh.login) source /etc/csh.login
        if (-r ~/.login) source ~/.login
        exec /bin/sh -c $TFMUX_BEHIND:q' ;;
    fish)
      exec "$tfmux_shell" -l -c 'exec /bin/sh -c $argv' -- "$@" ;;
    *)
      tfmux_script=$1; shift
      exec "$tfmux_shell" -l -c "$tfmux_script" "$@" ;;
  esac
}
(tfmux_login 'exit 86') </dev/null >/dev/null 2>&1
tfmux_status=$?
if [ "$tfmux_status" -ne 86 ]; then
  (tfmux_login 'exit 86') </dev/null >&2
  echo "tfmux: the login shell $tfmux_shell ended with exit status $tfmux_status before the\
 command (exec or exit in a start-up file?): the task was not started" >&2
  exit 1
fi
unset tfmux_status
tfmux_login "$@"
"""


def shell_prefix(setup: str, shell: Shell, *, gated: bool = False) -> tuple[str, ...]:
    """Words before a program that is started through shells; empty where it needs none. A `gated`
    program waits for its stage by its input, and goes through no login shell."""
    if shell is Shell.LOGIN:
        return ("/bin/sh", "-c", _LOGIN, "tfmux", _SETUP + _TASK, "tfmux", setup)
    if not setup:
        return ()
    script = f"{_WITHOUT_INPUT}{_SETUP}{_TASK_WITH_INPUT}" if gated else _SETUP + _TASK
    return ("/bin/sh", "-c", script, "tfmux", setup)


def with_exports(env: Mapping[str, str], shell: Shell) -> dict[str, str]:
    """Adds what makes the variables of the cluster file win over those that the files of a login
    shell set. Variables to which those files may append (`PYTHONPATH`) are left to them."""
    if shell is not Shell.LOGIN:
        return dict(env)
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in env.items()
        if name not in (*EXTENDED, *_OURS) and _NAME.fullmatch(name)
    ]
    return {**env, RESTORED: "\n".join(lines)}


@frozen
class WarmStart:
    """A start before the task's stage has come: the modules that are imported, and the words of
    the runner (`on_host/warm.py`) that imports them and waits."""

    modules: tuple[str, ...]
    runner: tuple[str, ...]

    def argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Puts the runner into a task's command, between the interpreter and the program."""
        words = split_python(command)
        assert words is not None
        options, program = words
        return (command[0], *options, *self.runner, *program)


TRAINER_MODULES = ("tensorflow",)
"""Slow imports of the bundled trainer."""
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_FLAGS = "bBdEIOPqRsSuv"
"""Options of the interpreter without a value, which may stand in one word."""
_WITH_VALUE = "WX"
_PROGRAM = "mc"


def warm_start(
    argv: tuple[str, ...], python: str, key: bool | tuple[str, ...], trainer: str, tools: str
) -> WarmStart | None:
    """Makes the warm start of a command by `key`, the `[start] warm` of the file.

    None: the command is no Python program, or `warm = true` means only the bundled trainer and
    this is not it. `python` is what `{python}` means on the host, `trainer` and `tools` are the
    folders there.
    """
    if not key or (argv[0] != python and not _PYTHON.fullmatch(argv[0])):
        return None
    words = split_python(argv)
    if words is None:
        return None
    _, program = words
    if not isinstance(key, bool):
        # The file names them: one that is missing is an error.
        kind, modules = "required", key
    elif _is_trainer(program, f"{trainer}/trainer"):
        kind, modules = "optional", TRAINER_MODULES
    else:
        return None
    return WarmStart(modules, (f"{tools}/warm.py", kind, ",".join(modules)))


def _is_trainer(program: tuple[str, ...], folder: str) -> bool:
    return program[0] == folder or program[:2] == ("-m", "trainer")


def split_python(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The options of the interpreter, and its program: `-m NAME`, `-c CODE` or a script, with
    arguments. None where there is none, or an option is not known."""
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        word = argv[at]
        name = word.lstrip("-" + _FLAGS)  # behind flags that stand in the same word: -um
        if word == "-" or word.startswith("--"):
            return None  # a program on standard input, --help
        if name[:1] in _WITH_VALUE and name:
            at += 1 if len(name) > 1 else 2
        elif name[:1] in _PROGRAM and name:
            flags = word[: -len(name)]
            value = (name[1:],) if len(name) > 1 else ()
            program = (f"-{name[0]}", *value, *argv[at + 1 :])
            options = (*argv[1:at], *((flags,) if len(flags) > 1 else ()))
            return (options, program) if len(program) > 1 else None
        elif name:
            return None
        else:
            at += 1
    return (argv[1:at], argv[at:]) if at < len(argv) and argv[at] else None
