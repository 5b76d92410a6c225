"""Finds the NVIDIA driver on the host by its files alone, and keeps what is found as the inventory."""
