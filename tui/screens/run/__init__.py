"""The run screen: panes of living logs, what stands around them, and what the keys do to both."""
