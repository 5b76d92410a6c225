"""How the GPUs of a node reach each other, and what is near them: NVLink, PCIe, NUMA. Plain values.

Not here: asking NVML (`plugin.driver.nvml.links`), and which devices a container should get
(`plugin.devices.allocation.preference`).
"""
