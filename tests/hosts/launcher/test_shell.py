"""Shells before a task: `setup` lines, and login shells of every kind. Real shells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster.choices import Shell
from launcher.plan.environment import NO_PROXY_HOSTS
from launcher.plan.shell import RESTORED, shell_prefix, with_exports
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.testbed import faults
from tests.testbed.namespaces import Testbed

ODD_WORDS = [
    *("a b", "$HOME", "`x`", "'q'", '"d"', "!bang", "*", "new\nline", "\\", "", "-n", "-c", "ü"),
    *("{x}", "~", "#", "$argv[1]", "end\n", "&& false", "%"),
]
SHELLS = ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh", "/bin/tcsh", "/bin/csh", "/usr/bin/fish"]
SHOW = """
import json, os, sys
parent = open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")
print(json.dumps({"words": sys.argv[1:], "env": dict(os.environ), "parent": parent}))
"""
FILES = {
    ".profile": "export FROM_FILES=profile CHANGED=by-profile; PATH=/from/profile:$PATH\n",
    ".zprofile": "export FROM_FILES=profile CHANGED=by-profile; PATH=/from/profile:$PATH\n",
    ".login": "setenv FROM_FILES login\nsetenv CHANGED by-login\n",
    ".cshrc": "setenv FROM_CSHRC yes\n",
    ".config/fish/config.fish": (
        "set -gx FROM_FILES fish\nset -gx CHANGED by-fish\nif status is-login\n"
        "  set -gx FISH_LOGIN yes\nend\n"
    ),
}


def started(
    home: Path, setup: str, shell: Shell, *, login_shell: str = "/bin/sh", env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """A program that shows what it is given, started as a task is."""
    argv = [*shell_prefix(setup, shell), sys.executable, "-c", SHOW, *ODD_WORDS]
    base = {"HOME": str(home), "SHELL": login_shell, "PATH": os.environ["PATH"]}
    return subprocess.run(
        argv,
        env=with_exports({**base, **env}, shell) if shell is Shell.LOGIN else {**base, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the start-up files of all shells."""
    for name, text in FILES.items():
        path = tmp_path / "account" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "account"


def needs(shell: str) -> None:
    if not os.access(shell, os.X_OK):
        pytest.skip(f"this machine has no {shell}")


@pytest.mark.parametrize("setup", ["", "export MADE=$((1 + 1))\n: # a comment"])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_login_shell_passes_every_word_on(home: Path, shell: str, setup: str) -> None:
    """Given each login shell with its start-up files, when a task starts behind it with or without
    `setup`, then those are read, the cluster file's variables win, and every word arrives."""
    needs(shell)
    odd = 'it\'s "odd" $HOME !x\nline'
    done = started(home, setup, Shell.LOGIN, login_shell=shell, env={"CHANGED": odd})
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[-1])
    assert shown["words"] == ODD_WORDS
    env = shown["env"]
    kinds = {"fish": "fish", "csh": "login", "tcsh": "login"}
    assert env["FROM_FILES"] == kinds.get(Path(shell).name, "profile")
    assert env["CHANGED"] == odd
    assert env.get("MADE") == ("2" if setup else None)
    ours = [name for name in env if name.lower().startswith("tfmux")]
    assert ours == [] and RESTORED not in env
    if shell.endswith("fish"):
        assert env["FISH_LOGIN"] == "yes"
    if shell.endswith("csh"):
        assert env["FROM_CSHRC"] == "yes"


LEAVING = ["exit 0", "exit 3", "exec bash", "exec zsh", "exec true"]


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        (shell, line)
        for shell in SHELLS
        for line in LEAVING
        # In csh and fish `exit` leaves the file, not the shell.
        if line.startswith("exec") or not shell.endswith(("csh", "fish"))
    ],
)
def test_a_start_up_file_that_ends_the_shell_is_a_failure(
    home: Path, shell: str, line: str
) -> None:
    """Given a start-up file that exits or replaces the login shell, when a task should start behind
    it, then the status is 1, and stderr has the reason below what the shell says."""
    needs(shell)
    if line.startswith("exec"):
        needs(f"/bin/{line.split()[1]}")
    for name in (".profile", ".zprofile", ".login", ".config/fish/config.fish"):
        (home / name).write_text(f"echo from the file\n{line}\n")
    done = started(home, "", Shell.LOGIN, login_shell=shell, env={})
    assert (done.returncode, done.stdout) == (1, "")
    status = 3 if line == "exit 3" else 0
    assert done.stderr == (
        f"from the file\ntfmux: the login shell {shell} ended with exit status {status} before "
        "the command (exec or exit in a start-up file?): the task was not started\n"
    )


def test_what_start_up_files_print_is_told_once(home: Path) -> None:
    """Given a start-up file that prints, when a task starts behind its login shell, then its lines
    come once, although the shell is tried first, and the task is the process that was started."""
    (home / ".profile").write_text("echo $$ >>~/shells; echo hello; echo there >&2\n")
    argv = [*shell_prefix("", Shell.LOGIN), "sh", "-c", "echo $$; cat /proc/$$/task/$$/children"]
    env = {"HOME": str(home), "SHELL": "/bin/sh", "PATH": os.environ["PATH"]}
    process = subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=-1)
    out, err = process.communicate()
    lines = out.split()
    assert lines[:2] == ["hello", str(process.pid)] and len(lines) <= 3  # its own cat
    assert err == "there\n"
    tried, shell = (home / "shells").read_text().split()
    assert tried != shell == str(process.pid)


def test_without_a_login_shell_no_file_is_read(home: Path) -> None:
    """Given a task without a login shell, when it starts behind `setup`, then that is followed and
    no start-up file is read; when there is no `setup` either, then there is no shell at all."""
    assert shell_prefix("", Shell.NONE) == ()
    done = started(home, "export MADE=yes; CHANGED=by-setup", Shell.NONE, env={"CHANGED": "x"})
    env = json.loads(done.stdout)["env"]
    assert (env["MADE"], env["CHANGED"], env.get("FROM_FILES")) == ("yes", "by-setup", None)
    assert json.loads(done.stdout)["words"] == ODD_WORDS


@pytest.mark.parametrize(
    ("setup", "env", "wanted"),
    [
        (":", {}, {}),
        (":", {"no_proxy": "lan"}, {"no_proxy": "lan"}),
        ("export http_proxy=", {}, {"http_proxy": ""}),
        (
            "export https_proxy=http://p:1",
            {},
            {"https_proxy": "http://p:1", "no_proxy": "tf1,tf2", "NO_PROXY": "tf1,tf2"},
        ),
        (
            "export ALL_PROXY=p:1 NO_PROXY=lan no_grpc_proxy=grid",
            {},
            {
                "ALL_PROXY": "p:1",
                "no_proxy": "lan,tf1,tf2",
                "NO_PROXY": "lan,tf1,tf2",
                "no_grpc_proxy": "grid,tf1,tf2",
            },
        ),
    ],
)
@pytest.mark.parametrize("shell", [Shell.NONE, Shell.LOGIN])
def test_a_proxy_of_setup_leaves_the_clusters_hosts_out(
    home: Path, shell: Shell, setup: str, env: dict[str, str], wanted: dict[str, str]
) -> None:
    """Without one the variables stay as they are, and nothing of ours stays in the environment."""
    env = {**env, NO_PROXY_HOSTS: "tf1,tf2"}
    found = json.loads(started(home, setup, shell, env=env).stdout)["env"]
    assert {k: v for k, v in found.items() if "proxy" in k.lower()} == wanted


FAILING: list[tuple[str, int | None, str]] = [
    ("no-such-command tf", 127, "no-such-command"),
    ("echo one\nfalse\necho never", 1, ""),
    ("exit 0", 1, ""),
    ("exit 7", 7, ""),
    ("if then", None, " error"),
    ("echo 'open", None, ""),
    ("test -f /nowhere", 1, ""),
    ("return 3", 3, ""),
]


@pytest.mark.parametrize(
    ("shell", "setup", "status", "said"),
    [
        # Each line without a shell, and each shell with a line; in a soak all with all.
        *(("none", *line) for line in FAILING),
        *((shell, *FAILING[0]) for shell in SHELLS),
        *(soak(shell, *line) for shell in SHELLS for line in FAILING[1:]),
    ],
)
def test_a_setup_that_fails_stops_the_task_with_the_reason(
    home: Path, shell: str, setup: str, status: int | None, said: str
) -> None:
    """Given a `setup` with a line that fails, in each shell, when the task should start, then
    neither later lines nor the task run, and stderr has the line's message and then its status."""
    if shell != "none":
        needs(shell)
    kind = Shell.NONE if shell == "none" else Shell.LOGIN
    done = started(home, setup, kind, login_shell=shell, env={})
    if status is None:  # a syntax error; shells differ
        assert done.returncode != 0
    else:
        assert done.returncode == status, done.stderr
    assert "words" not in done.stdout and "never" not in done.stdout
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("tfmux: setup failed with exit status "), lines
    assert lines[-1].endswith(": the task was not started")
    assert said in done.stderr and "pop_var_context" not in done.stderr


@pytest.mark.parametrize(
    "setup", ["", "# only a comment", "true \\", "[ -f /nowhere ] && false\ntrue", "false || true"]
)
def test_a_setup_that_does_not_fail_starts_the_task(home: Path, setup: str) -> None:
    """Given a `setup` that is empty, a comment or a condition that does not hold, then the task
    starts; given one that ends in the middle of a line, then it does not."""
    if setup.endswith("\\"):  # it would join the line that follows it
        assert started(home, setup, Shell.NONE, env={}).returncode != 0
        return
    done = started(home, setup, Shell.NONE, env={})
    assert done.returncode == 0, done.stderr


def test_a_file_that_setup_sources_does_not_see_the_command(home: Path) -> None:
    """Given a file that `setup` sources, when it looks at its arguments, then there are none. Files
    such as conda's `activate` take the words of whoever sources them for their own."""
    (home / "activate").write_text('export SEEN="$#:$*"\n')
    done = started(home, f". {home}/activate", Shell.NONE, env={})
    assert json.loads(done.stdout)["env"]["SEEN"] == "0:"


CONDA = """
conda_program() (
    [ "$2" != absent ] || { echo "EnvironmentNameNotFound: $2" >&2; exit 1; }
    printf 'export CONDA_DEFAULT_ENV=%s\\nPATH=/envs/%s/bin:$PATH\\n' "$2" "$2"
)
conda() {
    \\local cmd="${1-__missing__}" ask_conda
    case "$cmd" in
        activate)
            ask_conda="$(PS1="${PS1:-}" conda_program "$@")" || \\return
            \\eval "$ask_conda"
            if [ -n "${ZSH_VERSION:+x}" ]; then \\rehash; else \\hash -r; fi ;;
        *) conda_program "$@" ;;
    esac
}
if [ -z "${CONDA_SHLVL+x}" ]; then
    \\export CONDA_SHLVL=0
    if [ -z "${PS1+x}" ]; then PS1=; fi
fi
"""
"""In the manner of conda's own file: a function that evaluates what a program prints."""
MODULES = """
module() {
    _module_code=$(sh -c 'test "$2" != absent && echo "export LOADED=$2"' sh "$@") || {
        echo "ERROR: Unable to locate a modulefile for '$2'" >&2; return 1; }
    eval "$_module_code"
}
"""


@variants("shell", ["none", *SHELLS], test=3)
def test_conda_is_activated(home: Path, shell: str) -> None:
    """Given a `setup` that sources conda's file, in each shell, when it activates an environment,
    then the task has it; an environment that is not there ends the task with conda's reason."""
    if shell != "none":
        needs(shell)
    kind = Shell.NONE if shell == "none" else Shell.LOGIN
    (home / "conda.sh").write_text(CONDA)
    for joint in (" && ", "\n"):
        setup = f". ~/conda.sh{joint}conda activate "
        done = started(home, f"{setup}tf", kind, login_shell=shell, env={})
        assert done.returncode == 0, done.stderr
        env = json.loads(done.stdout.splitlines()[-1])["env"]
        assert env["CONDA_DEFAULT_ENV"] == "tf" and env["PATH"].startswith("/envs/tf/bin:")
        done = started(home, f"{setup}absent", kind, login_shell=shell, env={})
        assert done.returncode == 1 and "words" not in done.stdout
        first, last = done.stderr.splitlines()
        assert first == "EnvironmentNameNotFound: absent"
        assert last == "tfmux: setup failed with exit status 1: the task was not started"


@pytest.mark.parametrize("shell", SHELLS[:4])
def test_modules_of_a_start_up_file_are_loaded(home: Path, shell: str) -> None:
    """Given a login shell with the function `module`, as on clusters, when `setup` loads a module,
    then the task has it; a module that is not there ends the task with its reason."""
    needs(shell)
    for name in (".profile", ".zprofile"):
        (home / name).write_text(MODULES)
    setup = "module load cuda/12.4\nmodule load {0} && export ALSO={0}"
    done = started(home, setup.format("python"), Shell.LOGIN, login_shell=shell, env={})
    assert done.returncode == 0, done.stderr
    env = json.loads(done.stdout)["env"]
    assert (env["LOADED"], env["ALSO"]) == ("python", "python")
    setup = "module load {0}\nexport ALSO={0}"
    done = started(home, setup.format("absent"), Shell.LOGIN, login_shell=shell, env={})
    assert (done.returncode, done.stdout) == (1, "")
    first, last = done.stderr.splitlines()
    assert first == "ERROR: Unable to locate a modulefile for 'absent'"
    assert last == "tfmux: setup failed with exit status 1: the task was not started"


def test_an_account_without_a_usable_shell_is_told(home: Path) -> None:
    """Given an account with `nologin` as its login shell, when a task should start behind it, then
    it fails, and the output says that the account is not available."""
    needs("/usr/sbin/nologin")
    done = started(home, "", Shell.LOGIN, login_shell="/usr/sbin/nologin", env={})
    assert done.returncode != 0 and "not available" in done.stdout + done.stderr


def test_without_SHELL_the_account_says_which_shell(home: Path) -> None:
    """Given an environment without SHELL, as `podman exec` gives it, when a task starts behind the
    login shell, then that is the account's own, and reads its start-up files."""
    argv = [*shell_prefix("", Shell.LOGIN), sys.executable, "-c", SHOW]
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1])["env"]["FROM_FILES"], done.stderr


# --- tasks -------------------------------------------------------------------------------


TASK = """
import json, os, sys
names = ("FROM_FILES", "CHANGED", "RUN", "HOST", "JOB", "SECRET")
parent = open(f"/proc/{os.getppid()}/comm").read().strip()
size = os.get_terminal_size() if sys.stdout.isatty() else None
print(json.dumps([{n: os.environ.get(n) for n in names}, parent, size and list(size)]))
"""


def lines_of(stdout: str) -> dict[str, list[object]]:
    """What each task has shown."""
    rows = [line.partition(" | ") for line in stdout.splitlines() if " | [{" in line]
    return {task: json.loads(text) for task, _, text in rows}


def test_variables_and_terminals_by_run_host_and_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given variables, `pty` and `shell` of a run, a host and a job, when the job's task starts,
    then the job's win over the host's, and the host's over the run's."""
    monkeypatch.setenv("SECRET", "swordfish")
    (tmp_path / "home" / ".profile").write_text(FILES[".profile"])
    monkeypatch.setenv("SHELL", "/bin/sh")
    command = json.dumps(["{python}", "-c", TASK.replace("{", "{{").replace("}", "}}")])
    text = f"""
[hosts.localhost]
env = {{ HOST = "host", RUN = "host", JOB = "host" }}
[jobs.worker]
tasks = ["localhost:auto"]
env = {{ JOB = "job", CHANGED = "job" }}
env_from = ["SECRET"]
pty = true
[jobs.other]
tasks = ["localhost:auto"]
shell = "none"
[run]
workdir = ""
success = "all"
shell = "login"
env = {{ RUN = "run", HOST = "run", JOB = "run", CHANGED = "run" }}
command = {command}
[start.ready]
worker = "started"
other = "started"
"""
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 0, done.stderr
    shown = lines_of(done.stdout)
    env = {"RUN": "host", "HOST": "host"}
    assert shown["worker:0"][0] == {
        **env,
        **{"JOB": "job", "CHANGED": "job", "FROM_FILES": "profile", "SECRET": "swordfish"},
    }
    assert shown["worker:0"][2] == [200, 50]
    assert shown["other:0"][0] == {
        **env,
        # On this machine tasks have the launcher's own variables, the secret among them.
        **{"JOB": "host", "CHANGED": "run", "FROM_FILES": None, "SECRET": "swordfish"},
    }
    assert shown["other:0"][2] is None


def test_a_setup_that_fails_is_the_first_failure(tmp_path: Path) -> None:
    """Given a `setup` with a command that is not there, when the run is launched, then exit 1, and
    the first failure names the task, the host, the status and the reason."""
    text = """
[jobs.worker]
tasks = ["localhost:auto"]
ready = "started"
setup = "conda-that-is-not-there activate tf"
[run]
workdir = ""
command = ["{python}", "-c", "print('started')"]
"""
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 1
    assert "first failure: worker:0 on localhost: exit 127" in done.stderr
    assert "conda-that-is-not-there" in done.stderr
    assert "setup failed with exit status 127: the task was not started" in done.stderr
    assert "started" not in done.stdout.replace("not started", "")


@pytest.mark.prove
def test_a_login_shell_that_never_runs_the_task_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a start-up file that replaces the login shell, when a run is launched or checked, then
    exit 1 for the launch and 3 for the check, both with that reason."""
    (tmp_path / "home" / ".profile").write_text("exec sh\n")
    monkeypatch.setenv("SHELL", "/bin/sh")
    text = cluster_text(
        {"worker": {"tasks": 1, "ready": "started"}},
        command=["{python}", "-c", "print('ran')"],
        workdir="",
        shell="login",
    )
    file = str(write(tmp_path, text))
    reason = "the login shell /bin/sh ended with exit status 0 before the command"
    done = run("up", file, "--headless")
    assert done.returncode == 1 and "ran" not in done.stdout
    assert "first failure: worker:0 on localhost: exit 1" in done.stderr
    assert reason in done.stderr
    done = run("check", file)
    assert done.returncode == 3 and "[command-missing]" in done.stdout
    assert reason in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "shells", [["/bin/bash", "/bin/tcsh", "/bin/csh", "/usr/bin/fish"], soak(["/bin/dash"])]
)
def test_a_login_shell_on_a_host_is_the_accounts(
    testbed: Testbed, tmp_path: Path, shells: Sequence[str]
) -> None:
    """Given accounts on hosts with a login shell each, when a task starts there over SSH, then
    that shell's files are read, the run's variables win, and no shell stays above the task."""
    used = {
        host: shell
        for host, shell in zip(testbed, shells, strict=False)
        if faults.has_shell(host, shell)
    }
    for host, shell in used.items():
        faults.login_shell(host, shell)
        for name, text in FILES.items():
            path = f"{host.account.home}/{name}"
            host.run(["mkdir", "-p", os.path.dirname(path)])
            host.write(path, text)
        host.run(["chown", "-R", host.account.name, host.account.home])
    command = json.dumps(["{python}", "-c", TASK.replace("{", "{{").replace("}", "}}")])
    text = f"""{testbed.hosts_toml()}
[jobs.worker]
tasks = {json.dumps([f"{host.name}:2222" for host in used])}
ready = "started"
[run]
shell = "login"
setup = "export JOB=from-setup"
env = {{ CHANGED = "run's \\"own\\"", RUN = "run" }}
command = {command}
success = "all"
"""
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 0, done.stderr
    kinds = {"fish": "fish", "csh": "login", "tcsh": "login"}
    for number, shell in enumerate(used.values()):
        env, parent, size = lines_of(done.stdout)[f"worker:{number}"]
        assert isinstance(env, dict)
        assert env["FROM_FILES"] == kinds.get(Path(shell).name, "profile"), shell
        assert (env["CHANGED"], env["RUN"], env["JOB"]) == ('run\'s "own"', "run", "from-setup")
        assert str(parent).startswith("python") and size is None, shell
