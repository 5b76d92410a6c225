"""Hard limits of what containers may have of a GPU's memory, kept by the driver for each container's control group.

A container that was given units of memory gets exactly their bytes, before it starts: the hook asks over the admin
socket, and the amount comes from what the kubelet was answered, never from an image or a pod. Not here: how NVML is
told (`plugin.driver.nvml.changes.memory_limits`), and how units are given out (`plugin.devices.allocation`).
"""
