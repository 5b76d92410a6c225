"""What every part may use, and knows nothing of GPUs: documents, errors, the log."""
