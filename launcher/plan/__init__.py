"""What a cluster file comes to: each task's exact command and environment, and the stages."""
