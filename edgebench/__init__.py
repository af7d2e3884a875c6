"""edgebench: is a forgery detector still right, how fast and in how much memory, once it is compiled?"""

__version__ = "0.1.0"
