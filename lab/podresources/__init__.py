"""Queries a kubelet's pod resources: which container has which device.

Only the kubelet knows: neither the pod object nor the device plugin shows which device a container got.
"""

from lab.podresources.client import ContainerDevices, allocatable, allocated

__all__ = ["ContainerDevices", "allocatable", "allocated"]
