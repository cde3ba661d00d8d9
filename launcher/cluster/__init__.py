"""A cluster file: its models, what is wrong with it, changing it and keeping it."""
