"""Which packages a driver is on a distribution, and where they come from."""
