"""A person's own table from the command line: fit, compare, predict, report."""
