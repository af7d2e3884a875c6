"""Published classifiers as torch modules, with the loaders of their published weights.

Every module takes float32 [N, 3, H, W], RGB, normalised as its recipe says, and gives P(forged) [N] in [0, 1].
"""
