"""The remembered release. While there is one, no GPU of this node is offered and the driver is not asked."""
