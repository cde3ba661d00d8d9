"""The launcher process of a run: what runs in it, from its order to the end of the run.

                        control_socket ◄─ clients
                              │ commands          bulkhead ┆ reader
   entry ─► run_shell ─► run.machine ─► executor     ▲
              │   ▲           ▲ events    │          │ questions about text
              ▼   └───────────┴───────────┴─ parts ──┘
          assembly: host_links, output, preparation, hang, judge, release, …

    entry               waits for the order, and is the process
    rehearsal           warms the process up while it waits
    run_shell           feeds the machine, records, tells clients
    core                what every part may ask for
    assembly            makes the parts, and draws who knows whom
    executor            carries the machine's instructions out
    control_socket      serves the clients
    prompt_queue        keeps SSH prompts until a client's person answers
    host_links          turns what agents say into events
    preparation         asks hosts before the launch, and sends files
    slurm_allocation    gets nodes from Slurm, and gives them back
    output              stores logs, tells of exits and figures
    hang                finds what hangs
    judge               has the cause of a failure found
    stack_collector     takes the stacks of tasks
    gpu_watch           keeps the GPUs of hosts
    hooks               runs the hooks
    release             fetches what is left, and lets hosts go
    bulkhead            asks the reader, another process, about text

The loop is the main thread's. Disks have threads of their own (`output`, `store.run_writer`), hooks
one each, and the bulkhead two; all of them come back over `crossing`.
"""
