"""A run with its launcher: the engine and its thread, and who attends to, watches or kills it."""
