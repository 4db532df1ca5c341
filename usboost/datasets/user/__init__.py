SIZE = 160
"""Side of a person's images in pixels, when nothing else is asked for; see docs/results.md."""
