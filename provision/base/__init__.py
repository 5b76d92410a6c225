"""What every other room stands on and knows nothing of GPUs: errors, JSON, files, archives, HTTP both ways."""
