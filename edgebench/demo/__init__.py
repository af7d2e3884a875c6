"""The demo: photographs that dependencies ship, forgery operations, a mini benchmark and a small model."""
