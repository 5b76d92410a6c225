"""Memory units of GPUs as users of Alibaba's gpushare know them: the scheduler extender, and the daemon's report to it.

Neither trusts annotations: the units that a pod holds are those that its kubelet lists (decision 0061). Not here: how
units become devices, which is `devices` and `allocation`.
"""
