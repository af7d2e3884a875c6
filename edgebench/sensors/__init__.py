"""What the machine says of itself while a run goes on: conditions, memory, energy. Unknown is None, never 0."""
