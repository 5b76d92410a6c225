#!/usr/bin/python3 -IS
"""Starts the wrapper runtime: what ``grapnel-runtime`` (``wrapper_launcher.sh``) becomes when there is work for it."""

import os
import sys

sys.path.insert(0, os.path.realpath(f"{__file__}/../../.."))

from runtime_hook.engines.wrapper import run

run(os.path.abspath(f"{__file__}/../../.."), sys.argv[1:])
