"""The laboratory: a GPU machine without a GPU. Serves the demo, the tests, molecule and the benchmarks.

Rooms: ``machine`` (the machine the laboratory runs on), ``trees`` (base trees of the nodes), ``bundle`` (their apt
repository), ``kmod`` (the simulated kernel module seam), ``nodes`` (sites of booted systemd nodes), ``nvml`` (the
simulated NVML library). Nothing here ships in the wheel, and no package of the product imports it.
"""
