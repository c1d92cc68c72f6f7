"""The kernel: values, the pure machine, supervision and the journal."""
