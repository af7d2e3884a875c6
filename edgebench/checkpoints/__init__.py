"""Checkpoints as they were published: where they are, who they are, and how a framework loads them.

Export and the engine `torch` both stand on it.
"""
