"""Says what is to be done about the nodes of stacks, of what the controller knows. Pure."""
