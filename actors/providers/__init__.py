"""Wire mappings, one module a model API."""
