"""Everything between this daemon and the kubelet.

The daemon serves its own socket (`server`), tells the kubelet about it (`registration`), and does both
again whenever the kubelet was replaced (`link`). What is offered and what a container gets is decided
in `resources`, `allocation` and `preference`; here it only becomes messages.
"""
