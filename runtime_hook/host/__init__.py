"""The host's side: what of the NVIDIA driver is there, found by files alone, kept as the inventory."""
