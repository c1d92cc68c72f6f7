"""The concerns of a session, one actor a module, and the composition root."""
