"""Reads values that are written in a form of their own: quantities, selectors, shares, MIG profiles, time zones."""
