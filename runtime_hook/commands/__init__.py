"""What people and other parts call: explain, refresh, cdi, pack. Not on a container's path."""
