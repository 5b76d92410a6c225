"""Processes that hold a GPU: found in /proc, with the unit, pod and container that each belongs to."""
