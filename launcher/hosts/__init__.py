"""Connection to one host: transports, SSH and its keys, the agent there, the link to it."""
