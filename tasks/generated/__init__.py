"""Files that are written from the sources: chart, resource definition, the collection's README, the list of GPUs."""
