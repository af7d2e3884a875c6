"""Your own pictures and videos -> a benchmark in the published form."""
