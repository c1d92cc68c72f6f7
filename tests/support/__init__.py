"""Builders and fakes that more than one test uses."""
