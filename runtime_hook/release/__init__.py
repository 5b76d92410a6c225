"""A release in one file, for one interpreter."""
