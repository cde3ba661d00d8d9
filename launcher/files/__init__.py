"""Files to hosts and back: staging by content, and collecting results."""
