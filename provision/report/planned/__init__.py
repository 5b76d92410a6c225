"""Renders what would be done."""
