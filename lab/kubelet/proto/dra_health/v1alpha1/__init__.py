"""Version v1alpha1."""
