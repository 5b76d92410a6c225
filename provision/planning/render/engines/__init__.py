"""Renders what container engines read: configurations, handlers, hook files."""
