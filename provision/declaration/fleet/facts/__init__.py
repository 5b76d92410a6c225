"""What a node says of itself: parsed, bounded, printable."""
