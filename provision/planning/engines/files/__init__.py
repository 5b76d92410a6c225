"""Reads and writes what files of several engines have in common."""
