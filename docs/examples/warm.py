"""A program of two jobs whose slow import is over before its stage comes."""

import socket
import sys
import time

EARLY = "numpy" in sys.modules
import numpy as np  # noqa: E402

JOB, PORT = sys.argv[1], int(sys.argv[2])


def main():
    """Tells whether the import was over before; `ps` then serves, a `worker` computes."""
    print(f"numpy was imported before this program began: {EARLY}", flush=True)
    server = socket.create_server(("127.0.0.1", PORT))
    if JOB == "ps":
        time.sleep(3600)  # the end of the workers ends it
    for step in range(1, 11):
        print(f"step {step} loss {np.linalg.norm(np.ones(4)) / step:.3f}", flush=True)
        time.sleep(0.1)
    server.close()


if __name__ == "__main__":
    main()
