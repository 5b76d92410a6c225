"""GPUs that several containers have: limits of memory, MPS, and who uses more than was given."""
