"""Provides the built module of every kernel, and judges who signed it."""
