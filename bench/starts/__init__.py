"""What a container start costs: the parts of ``bench/hook.py``.

``measuring`` starts one command; ``driver`` is a host with a driver, ``images`` are container images, ``bundles`` puts
both into an OCI bundle; ``nvidia`` builds NVIDIA's own tools, to stand beside ours; ``verdict`` holds figures against
the budget and ``history`` against the last time. The last two are pure.
"""
