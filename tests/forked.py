"""`python -S forked.py RUN PROGRAM…` is that program, forked by the fork server of a test run.

For programs that a test has others start: nothing is imported here that takes long.
"""

import array
import json
import os
import socket
import sys


def main(address: str, command: list[str]) -> int:
    """Return the exit code of the program, once it has ended."""
    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        request = {"command": command, "folder": os.getcwd(), "variables": dict(os.environ), "terminal": False}
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2, theirs.fileno()])
        theirs.close()
        _, code = (array.array("q", ours.recv(8))[0] for _ in range(2))
    return code


if __name__ == "__main__":
    sys.exit(main(f"\0{sys.argv[1]}", sys.argv[2:]))
