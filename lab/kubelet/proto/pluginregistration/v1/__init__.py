"""Version v1, the only one so far."""
