"""The remembered release. While there is one, no GPU of this node is offered and nobody asks the driver."""
