"""Run screen: panes with logs, the chrome around them, and the commands of the keys."""
