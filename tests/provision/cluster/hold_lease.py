"""Holds the lease until it is killed: ``hold_lease.py KUBECONFIG HOLDER``."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from provision.cluster import PodRules, connect

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background inherits that it is ignored
rules = PodRules(resources=frozenset())
cluster = connect(Path(sys.argv[1]), None, {}, state_file=Path("/nowhere"), rules=rules, machines={})
with cluster.lease(sys.argv[2]):
    print("held", flush=True)  # noqa: T201 - the test waits for it
    time.sleep(600)
