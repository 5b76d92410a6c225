"""This node's GPUs as the daemon knows them: the inventory, the observer that keeps it fresh, and resources."""
