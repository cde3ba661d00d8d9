"""A script that reads its rank from the environment, as PyTorch's do, and meets the others.

It needs Python alone: rank 0 listens at `MASTER_ADDR:MASTER_PORT`, gets a number from every other
rank and sends each the sum.
"""

import os
import socket
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
ROUNDS = 20


def connect():
    """Connects to rank 0, which may not listen yet."""
    while True:
        try:
            return socket.create_connection(PLACE, timeout=60).makefile("rw")
        except OSError:
            time.sleep(0.1)


def add_up(others, number):
    """Returns the sum of the numbers of all ranks."""
    if RANK == 0:
        total = number + sum(float(other.readline()) for other in others)
        lines = [(other, total) for other in others]
    else:
        lines = [(others[0], number)]
    for other, value in lines:
        other.write(f"{value}\n")
        other.flush()
    return total if RANK == 0 else float(others[0].readline())


def main():
    """Adds up some numbers."""
    print(f"rank {RANK} of {SIZE}, {os.environ['LOCAL_RANK']} on this host", flush=True)
    if RANK == 0:
        family = socket.AF_INET6 if ":" in PLACE[0] else socket.AF_INET
        server = socket.create_server(("", PLACE[1]), family=family)
        others = [server.accept()[0].makefile("rw") for _ in range(SIZE - 1)]
    else:
        others = [connect()]
    for step in range(1, ROUNDS + 1):
        total = add_up(others, RANK / step)
        print(f"step {step} loss {total:.4f}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
