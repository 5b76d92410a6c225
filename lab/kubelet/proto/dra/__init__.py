"""One folder for each version."""
