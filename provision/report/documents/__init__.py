"""Renders what is shown as JSON, each by its contract."""
