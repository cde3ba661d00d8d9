"""Cluster files: model, parser and checks, editing, and the library of saved files."""
