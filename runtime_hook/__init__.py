"""The OCI prestart hook: gives a container the host's NVIDIA driver files when, and only when, it was given a GPU.

Responsible for: reading what the runtime hands over, deciding entitlement, reading the request, planning and
applying file-system work (in ``env`` mode device nodes and cgroup v1 rules too), and the host driver inventory.
Does not belong here: choosing GPUs for a container (the node daemon), engine configuration (provision), NVML, the
network, and any import that is not in Python's standard library.

One journey: ``prestart`` gathers facts, ``decision`` decides (nothing, refused, or granted with a plan), ``prestart``
applies the plan. ``explain`` shows the same decision. Imports go downhill; the layers contract in ``pyproject.toml``
holds that.

Start-up budget: the hook runs once per container start on every node. A container without a GPU must cost at most
1.3 times ``python3 -I -S -c pass`` in CPU. So the modules on the way to that decision import only ``os``, ``sys``,
``errno``, ``stat`` and C modules: not json (5.6 ms, it imports re), not re, enum, dataclasses (11 ms), pathlib,
logging, argparse, typing, signal (3 ms), socket (5 ms). The path of a GPU has the same rules; ``_ctypes``, without
its Python half (1.1 ms), comes after the decision. An installed release is one packed file (``packing``).
``tests/runtime_hook/test_budget.py`` holds this list.
"""

VERSION = "0.1.0"
