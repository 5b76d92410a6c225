"""What is measured on nodes that are booted for it."""
