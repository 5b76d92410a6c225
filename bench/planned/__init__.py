"""Plans a fleet from recorded facts, step by step, for `bench/provision.py`."""
