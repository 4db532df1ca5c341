"""Others' methods, to be measured against: one wrapper, and a table of packages."""
