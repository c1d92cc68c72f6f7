"""What the model is told about the project: instruction files, skills, memory, and what changes meanwhile."""
