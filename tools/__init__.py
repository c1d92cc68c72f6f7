"""The hands: the tool protocol's concrete tools."""
