"""Hooks from settings files: commands and web addresses that are told what happens and may have a say in it."""
