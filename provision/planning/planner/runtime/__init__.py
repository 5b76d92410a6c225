"""Plans a node's container engine: its package, its configuration, our handler in it."""
