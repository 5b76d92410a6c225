"""What is written through the library."""
