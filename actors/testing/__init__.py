"""The public testkit."""
