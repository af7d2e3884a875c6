"""A module whose native part brings the interpreter down while it is imported."""

import os

os.write(2, b"symbol lookup error: undefined symbol: cudaWhatever\n")
os.abort()
