"""Shows what is going on, on a terminal or in a log."""
