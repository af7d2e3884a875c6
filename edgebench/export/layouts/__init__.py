"""Checkpoints of LLaVA-1.5's shape in the layouts they are published in, shown as if transformers had written them."""
