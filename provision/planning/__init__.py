"""What has to change on a node, and what that is made of: pure but for the archives of supply."""
