"""What only some nodes declare, wired into the daemon, and imported there alone."""
