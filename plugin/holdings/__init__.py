"""Who has a GPU, and who had it."""
