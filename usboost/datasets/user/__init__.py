SIZE = 160
"""Side of a user's images in pixels, when nothing else is asked for; see docs/results.md."""
