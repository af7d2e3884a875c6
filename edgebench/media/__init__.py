"""Media: from encoded bytes to the graph's input, exactly as the reference processors do it."""
