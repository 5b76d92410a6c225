#!/usr/bin/python3 -IS
"""The simulated MPS server: a process with the right name that stays until it is ended.

It starts as NVIDIA's does (seen with driver 550): as the user of its client it opens the pipe that logs go to and
connects to the control daemon, and makes nothing in their folder. Where it cannot, it ends. It has its name from then
on.
"""

import ctypes
import os
import signal
import socket
from pathlib import Path

_PR_SET_NAME = 15
_PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])

os.open(_PIPE / "log", os.O_WRONLY | os.O_NONBLOCK)
with socket.socket(socket.AF_UNIX) as control:
    control.connect(str(_PIPE / "control"))
ctypes.CDLL(None).prctl(_PR_SET_NAME, b"nvidia-cuda-mps-server", 0, 0, 0)  # the kernel cuts it after 15 characters
signal.pause()
