"""A stand-in for the kubelet's device manager, for fast tests and the demo.

It does what `pkg/kubelet/cm/devicemanager` of Kubernetes does on the wire: it owns `kubelet.sock`, asks
a plugin for its options inside Register, opens ListAndWatch once and never again, and asks for a
preference before it allocates. It places no pods and writes no checkpoint: for those there is a real
kubelet.
"""

from lab.kubelet.device_manager import APP, INIT, SIDECAR, AllocationRefused, Container, DeviceManager, Pod
from lab.kubelet.manager import Assignment, Kubelet
from lab.kubelet.registry import Device, Mode

__all__ = [
    "APP",
    "INIT",
    "SIDECAR",
    "AllocationRefused",
    "Assignment",
    "Container",
    "Device",
    "DeviceManager",
    "Kubelet",
    "Mode",
    "Pod",
]
