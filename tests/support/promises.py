"""Promises of README and SECURITY, and for each a few tests of `make test` that show it.

A test here that lies in a folder `attacks` is run by `make test`, too.
"""

from __future__ import annotations

_CONTRACT = "tests/hosts/test_contract.py::"
_KILLS = "tests/hosts/test_kills.py::"
_CONTROL = "tests/hosts/attacks/test_control_path.py::"
_SERVE = "tests/processes/attacks/test_serve_access.py::"

README = {
    "A cluster file names hosts and jobs. tfmux starts every task over SSH in the right order": (
        "tests/hosts/test_run_command.py::test_the_file_of_the_readme_trains",
        f"{_CONTRACT}test_all_start_in_order_and_one_key_ends_what_does_everything_not_to_die",
        "tests/hosts/test_run_command.py::test_a_real_training_on_hosts",
    ),
    "trains on this machine, 1 ps + 2 workers": (
        "tests/tensorflow/test_async.py::test_three_ps_and_two_workers_on_real_digits",
    ),
    "Whatever `ssh NAME` reaches works, with your `~/.ssh/config`, keys, agents and jump hosts": (
        "tests/hosts/test_run_command.py::test_hosts_as_ssh_knows_them",
        "tests/processes/attacks/test_ssh_config.py"
        "::test_a_jump_host_of_the_configuration_is_taken",
    ),
    "The folder of the file is copied to the hosts": (
        f"{_CONTRACT}test_files_go_there_and_results_come_back",
    ),
    "runs programs of TensorFlow 1 on today's release": (
        "tests/tensorflow/test_tf1_tutorials.py::test_tasks_of_a_cluster_count_in_one_variable",
    ),
    "since `TF_CONFIG` is set": (
        "tests/tensorflow/test_scripts.py::test_figures_and_readiness_of_keras_on_a_pipe",
    ),
    "`tfmux plan cluster.toml` prints every command and the order": (
        "tests/processes/test_headless.py::test_plan_shows_the_exact_command_and_starts_nothing",
    ),
    "reports what would fail: Python, modules, ports, disks, and connections between hosts": (
        "tests/hosts/launcher/test_preflight.py::test_homes_and_keys_that_fail",
        "tests/hosts/launcher/test_preflight.py::test_ways_between_hosts_are_told_apart",
        "tests/hosts/launcher/test_preflight.py::test_the_host_that_lacks_it_is_named",
        "tests/processes/launcher/test_preflight.py::test_a_taken_port_ends_with_3_and_names_its_holder",
    ),
    "Or `tfmux up cluster.toml --headless` for a script": (
        "tests/processes/test_headless.py"
        "::test_a_run_that_works_ends_with_0_and_its_lines_on_stdout",
    ),
    "detach and come back with `tfmux attach`, from any terminal": (
        "tests/hosts/test_leaving.py::test_a_detached_run_goes_on_with_all_its_rules",
    ),
    "with ranks as `torchrun` gives them": (
        "tests/hosts/test_run_command.py::test_ranks_start_again_together",
    ),
    "F9 ends everything on all hosts at once": (
        f"{_CONTRACT}test_all_start_in_order_and_one_key_ends_what_does_everything_not_to_die",
        f"{_KILLS}test_kill_while_hosts_are_away_and_during_their_return",
        "tests/processes/test_terminal.py::test_a_run_is_watched_and_killed_with_one_key",
        "tests/hosts/test_tmux_editor.py::test_up_asks_for_the_keys_of_strangers_and_f9_ends_it",
    ),
    "Nothing delays the kill": (
        f"{_KILLS}test_kill_under_a_flood_of_all_tasks",
        f"{_CONTROL}test_clients_that_never_read_delay_nothing",
        f"{_CONTROL}test_a_frozen_disk_delays_nothing",
        f"{_CONTROL}test_a_hosts_frozen_disk_delays_nothing",
        "tests/processes/test_crash.py::test_the_kill_key_does_not_wait_for_a_screen_that_hangs",
    ),
    "No process is left behind": (
        f"{_CONTRACT}test_hosts_end_by_themselves_what_a_launcher_has_left",
        "tests/hosts/test_leaving.py::test_in_every_phase_all_are_dead_by_lease_and_grace",
        "tests/hosts/test_cuts.py::test_a_cut_longer_than_the_lease_ends_the_host_by_itself",
    ),
    "The cluster file can tell it to keep them instead": (
        "tests/hosts/test_leaving.py::test_under_keep_a_run_without_launcher_lives_and_is_taken_up",
    ),
    "Nothing is lost": (
        f"{_CONTRACT}test_a_run_outlives_its_links_and_its_launcher",
        "tests/hosts/test_disks.py::test_a_full_disk_here_delays_the_log_and_nothing_else",
        "tests/processes/test_headless.py"
        "::test_wild_output_harms_nothing_and_is_stored_byte_for_byte",
    ),
    "The run outlives the screen": (
        "tests/processes/test_crash.py::test_the_run_goes_on_when_the_screen_fails",
        "tests/processes/test_serve.py::test_a_run_in_a_browser_from_launch_to_receipt",
        "tests/processes/launcher/test_client.py::test_a_client_that_detaches_ends_nothing",
    ),
    "live panes and ordered launch, [on Slurm](docs/slurm.md)": (
        "tests/hosts/test_slurm.py::test_a_run_starts_in_order_and_gives_the_nodes_back",
    ),
}

SECURITY = {
    "To the owner of the processes": (
        f"{_CONTRACT}test_all_start_in_order_and_one_key_ends_what_does_everything_not_to_die",
        "tests/hosts/test_kills.py::test_a_survivor_is_named_and_stays_known",
        "tests/processes/launcher/test_agent_kills.py"
        "::test_a_daemon_with_an_emptied_environment_is_found",
    ),
    "And it stays true": (
        "tests/hosts/test_kills.py::test_nothing_lives_behind_a_receipt",
        "tests/processes/launcher/test_agent_ends.py::test_no_start_behind_a_final_kill",
    ),
    "The kernel cannot confirm the end of one task among others": (
        "tests/processes/attacks/test_hosts.py"
        "::test_a_single_kill_ends_what_was_born_in_the_tasks_session",
    ),
    "A kill by the name of a run's folder reaches the run that the folder's files name": (
        "tests/processes/launcher/test_launcher_lock.py"
        "::test_a_kill_by_any_name_of_the_folder_reaches_the_launcher",
    ),
    "A kill waits for no log text, no disk, no screen and no slow client": (
        f"{_CONTROL}test_clients_that_never_read_delay_nothing",
        "tests/hosts/attacks/test_frozen_disks.py::test_f9_ends_a_run_while_the_disk_is_frozen",
        "tests/hosts/test_disks.py::test_a_kill_needs_no_room",
    ),
    "Against other users of the launching machine": (
        "tests/hosts/test_security.py::test_the_folder_of_runs_must_be_ours",
        "tests/hosts/test_security.py::test_no_secret_on_a_command_line_or_in_a_file",
        f"{_SERVE}test_another_user_with_the_token_is_refused",
        f"{_SERVE}test_beyond_the_loopback_only_with_tls_or_by_will",
    ),
    "To your secrets": (
        "tests/processes/test_secrets.py::test_what_a_run_tells_has_no_secret",
        "tests/processes/test_secrets.py::test_a_launcher_masks_what_another_shell_does_not_know",
    ),
    "Against other users of a host": (
        "tests/hosts/test_security.py::test_a_socket_folder_of_somebody_else_is_not_used",
        "tests/hosts/attacks/test_control_path.py::test_a_folder_of_another_user_locks_nobody_out",
    ),
    "Against a compromised host": (
        "tests/processes/attacks/test_hosts.py::test_a_lying_agent_over_ssh_makes_no_success",
        "tests/hosts/attacks/test_collect.py::test_a_host_that_sends_more_than_was_asked_for",
        "tests/processes/attacks/test_known_hosts.py::test_a_revoked_line_of_known_hosts_is_named",
        "tests/hosts/attacks/test_ssh_config.py::test_what_is_not_supported_is_refused",
    ),
    "To your programs": (
        "tests/processes/launcher/test_agent_stacks.py"
        "::test_a_program_with_other_plans_for_the_signal_loses_nothing",
        "tests/hosts/test_stacks.py::test_the_one_that_others_wait_for_comes_first",
    ),
    "Against a hostile log": (
        "tests/processes/attacks/test_text.py::test_the_worst_text_does_not_delay_the_end",
        "tests/processes/test_bulkhead.py::test_no_look_changes_a_run",
        "tests/hosts/test_security.py::test_escape_sequences_do_not_reach_stdout",
        "tests/processes/attacks/test_text.py::test_logs_on_a_terminal_are_pictures",
    ),
    "Against a hostile web page": (
        f"{_SERVE}test_no_token_no_answer",
        f"{_SERVE}test_pages_of_another_origin_are_refused",
    ),
}

SHOWN_BY = frozenset(
    test for promises in (README, SECURITY) for tests in promises.values() for test in tests
)
"""All tests that `make test` may not leave out."""
