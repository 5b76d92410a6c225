"""What a person declares, and the machines that it is for."""
