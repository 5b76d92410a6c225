"""Keeps the state of nodes in Kubernetes, and reads what is there of Nodes and pods."""
