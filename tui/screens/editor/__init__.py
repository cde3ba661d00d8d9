"""The cluster editor: tables over a file that keeps its comments."""
