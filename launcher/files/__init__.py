"""File transfer: staging of files to hosts by content, and collecting of results."""
