"""Simulates GPU machines for the demo, the tests, molecule and the benchmarks.

Folders: ``machine`` (the machine that the lab runs on), ``trees`` (base trees of the nodes), ``bundle`` (their apt
repository), ``kmod`` (the simulated kernel module interface), ``nodes`` (sites of booted systemd nodes), ``nvml`` (the
simulated NVML library). Nothing here ships in the wheel, and no package of the product imports it.
"""
