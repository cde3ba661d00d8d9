"""A run with its launcher: the run loop and its thread, and who attends to, watches or kills it."""
