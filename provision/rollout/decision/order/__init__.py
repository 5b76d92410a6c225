"""Which nodes go together, which go first, and where each has its place. Pure."""
