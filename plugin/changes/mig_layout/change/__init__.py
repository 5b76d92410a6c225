"""A change of how GPUs are cut while it is under way: what the daemon has to know of it, and no more."""
