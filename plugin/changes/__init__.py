"""What is changed on a node's GPUs and driver, and put back: driver changes, MIG layouts, settings."""
