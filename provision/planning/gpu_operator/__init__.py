"""Reads what NVIDIA's GPU operator was told (ClusterPolicy, NVIDIADriver, their ConfigMaps) as GpuStacks.

Every key gets a verdict, so that nothing is dropped without a word. Pure, but for `read`, which parses YAML.
"""
