"""Devices that are not NVIDIA's GPUs, each kind described by a file: which there are, and what a container gets."""
