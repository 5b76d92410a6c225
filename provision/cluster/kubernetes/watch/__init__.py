"""Knows objects of a cluster from watches, as they change."""
