"""Reads the text of a declaration, and says what is wrong with it at its place."""
