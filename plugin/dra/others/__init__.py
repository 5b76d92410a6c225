"""Other devices than GPUs for claims: what slices and engines are told of them, and the driver that gives them."""
