"""Keeps the state of nodes on this machine, where there is no cluster."""
