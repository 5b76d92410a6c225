"""The library itself: found, trusted, loaded, called."""
