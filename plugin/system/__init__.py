"""What the daemon needs of the operating system: files replaced whole, calls bounded in time, unix sockets."""
