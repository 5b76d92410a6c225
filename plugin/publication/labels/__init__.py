"""What a node's labels say of its GPUs: the names and values of NVIDIA's GPU feature discovery.

`labels` makes them from an inventory and the host's facts (`host`), with `gpus`, `mig`, `vgpu` and `values`; `keeper`
keeps them for the daemon, `file` leaves them for Node Feature Discovery. Not here: putting them on a Node.
"""
