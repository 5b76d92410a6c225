"""Knows container engines: their files, handlers and hook files."""
