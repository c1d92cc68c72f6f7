"""Agents below an agent: what kinds there are, the tools that start and end them, and who looks after them."""
