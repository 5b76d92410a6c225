"""The daemon itself: everything wired together, signals, systemd and the container hook."""
