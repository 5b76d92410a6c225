"""How GPUs are to be cut by MIG: the declared layout, where its instances can lie, and what leads there."""
