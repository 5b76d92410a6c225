"""Does the work on one node that a phase asks for."""
