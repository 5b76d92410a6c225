"""Persistence mode, compute mode, power limits and locked clocks of GPUs, as declared. Pure but for `store`."""
