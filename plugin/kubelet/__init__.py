"""Everything between this daemon and the kubelet.

`registration` makes a resource known to whichever kubelet there is, `device_plugin` serves it, `pod_resources` asks who
has which device; all of them speak gRPC (`rpc`). `offering` shows an inventory. What is offered and what a container
gets is decided in `devices` and `allocation`; here it only becomes messages. A second face, such as a DRA driver, has
its room beside `device_plugin`.
"""

KUBELET_SOCKET = "kubelet.sock"  # the kubelet's own, in each of its folders
