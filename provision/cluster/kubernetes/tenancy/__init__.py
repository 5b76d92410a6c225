"""Keeps the quotas, priorities and queues of a cluster as they are declared."""
