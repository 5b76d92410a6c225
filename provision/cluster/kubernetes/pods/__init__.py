"""Finds the pods that have a GPU, and has them leave their nodes."""
