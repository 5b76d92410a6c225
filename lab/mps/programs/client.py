#!/usr/bin/python3 -IS
"""A process that uses a GPU through MPS, as CUDA does when it is initialised: connects, says what it got, and stays.

Needs CUDA_MPS_PIPE_DIRECTORY, as a container has it. Prints its server and limits, or that there is no MPS. Ends with
its input. An argument is the user that it says it has.
"""

import os
import socket
import sys
from pathlib import Path

uid = sys.argv[1] if len(sys.argv) > 1 else str(os.getuid())
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(str(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "control")))
    connection.sendall(f"client {os.getpid()} {uid}\n".encode())
    print(connection.makefile().readline().strip(), flush=True)
except OSError:
    print("no mps", flush=True)
sys.stdin.read()
