"""What a kubelet says it has given to whom: its pod resources interface, asked from this machine.

The kubelet is the only one who knows: neither the pod's object nor the device plugin says which device a container got.
"""

from lab.podresources.client import Given, allocatable, given

__all__ = ["Given", "allocatable", "given"]
