"""How GPUs are cut by MIG, and the change."""
