"""What the hook is made with: files, JSON, values, errors, a time limit. Nothing of containers."""
