"""Published classifiers as torch modules, with the loaders of their published weights.

Every module is a `Detector`: it takes float32 [N, 3, H, W], RGB, normalised as its recipe says, and gives P(forged)
[N] in [0, 1], or its logits.
HAMMER reads a caption too: it is in no row here, but a family of its own.
"""

NETWORKS: dict[str, str] = {
    "cnnspot": "edgebench.checkpoints.networks.cnnspot:load_cnnspot",
    "lnp": "edgebench.checkpoints.networks.lnp:load_lnp",
    "meso4": "edgebench.checkpoints.networks.meso:load_meso4",
    "meso-inception4": "edgebench.checkpoints.networks.meso:load_meso_inception4",
    "minifasnet-v2": "edgebench.checkpoints.networks.minifasnet:load_minifasnet_v2",
    "minifasnet-v1se": "edgebench.checkpoints.networks.minifasnet:load_minifasnet_v1se",
    "tiny-ladeda-gradient": "edgebench.checkpoints.networks.tiny_ladeda:load_tiny_ladeda_wildrf",
    "tiny-ladeda-residual": "edgebench.checkpoints.networks.tiny_ladeda:load_tiny_ladeda_forensynth",
}
"""Network -> the function that builds it from a published weights file: `load(path) -> Detector`."""
