"""The node's half of a driver change: devices given up before it (`release`), the node verified after it."""
