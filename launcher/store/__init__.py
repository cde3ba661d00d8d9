"""What stays on disk of a run: logs, events, figures; and reading it again."""
