"""Which GPUs may be given away, and by what evidence one that may not becomes healthy again.

Pure but for `store` and `keeper`: observations in, the next state and its transitions out. Not here: asking NVML
(`plugin.driver.nvml`), and what the kubelet is told (`plugin.devices.inventory`, `plugin.devices.resources`).
"""
