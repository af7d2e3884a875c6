"""Prompt styles and answer matchers: how a question is put, and what an answer's text says."""
