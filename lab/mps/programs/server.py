#!/usr/bin/python3 -IS
"""The simulated MPS server: a process with the right name that stays until it is ended."""

import ctypes
import signal

_PR_SET_NAME = 15

ctypes.CDLL(None).prctl(_PR_SET_NAME, b"nvidia-cuda-mps-server", 0, 0, 0)  # the kernel cuts it after 15 characters
signal.pause()
