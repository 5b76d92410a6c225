"""Reads Nodes and what other tools and people want of them, and writes their labels and records."""
