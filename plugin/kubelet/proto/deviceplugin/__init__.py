"""The device plugin interface."""
