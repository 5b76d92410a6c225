"""Plans a node's driver: which one, its packages, its kernel module."""
