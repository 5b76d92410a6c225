"""Compares versions as each package manager does, and finds the driver's own version in them."""
