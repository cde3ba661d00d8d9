"""Clients of a launcher process: every front end is one.

    run_client          follows a run, and orders; one thread reads, any thread orders
    launcher_link       connects to the launcher process, and starts the next one
    launcher_process    starts a launcher process and gives it its order
    standby             keeps one waiting for a screen
    supervision         decides what becomes of a launcher that is silent or has died
    prompt_responder    puts SSH prompts to the person
    latch               is set once, also by a signal handler

A client knows the process by its socket and its order alone (`store.launcher_socket`).
"""
