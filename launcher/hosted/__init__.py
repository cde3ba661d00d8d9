"""Scripts that run on the hosts beside the tasks: one file each, standard library, Python 3.8."""
