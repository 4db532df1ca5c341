"""What is written: files and folders as a whole, arrays, and the parts that a file may name."""

from usboost.files.writing import replacing, write_atomically

__all__ = ["replacing", "write_atomically"]
