"""Plans the operations for a grant. Pure: a plan can be shown before anything happens."""
