"""Compares the node with what `grapnel apply` brought about on it, without a controller.

`declared` is what was brought about, `host` reads what is, `compare` tells them apart, `result` is what is left in a
file for the daemon. Not here: the timer (`deploy/systemd`), and what the declaration itself says, which no node knows.
"""
