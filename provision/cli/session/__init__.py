"""What verbs have in common: the fleet and its clusters opened, looked at, changed, written down."""
