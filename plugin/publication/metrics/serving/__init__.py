"""How the page is made when it is asked for, and leaves the daemon."""
