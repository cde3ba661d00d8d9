"""A run with its launcher process, the clients of that, and what is known of past runs."""
