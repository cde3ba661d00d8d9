"""Scripts that are copied to hosts and run there: standard library only, Python 3.8."""
