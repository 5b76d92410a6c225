"""The only place that imports pynvml: turns NVML's answers into snapshots.

Not here: any decision about what an answer means for the kubelet.
"""
