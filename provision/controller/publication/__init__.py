"""Tells how stacks and the controller stand: statuses, Events, metrics, probes."""
