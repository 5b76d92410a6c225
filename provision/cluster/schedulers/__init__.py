"""Keeps the state of nodes to which another scheduler than Kubernetes gives their work."""
