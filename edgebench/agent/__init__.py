"""Checking a news picture and its caption in steps, as MMFakeBench's agent does, and the knowledge that it asks for."""
