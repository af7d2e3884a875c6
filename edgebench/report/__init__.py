"""Reports: data, then renderers that are functions."""
