"""What others are told: labels, metrics, the Node object."""
