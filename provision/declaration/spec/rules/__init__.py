"""Checks rules across keys: what each key allows alone, but not together, and what is doubtful."""
