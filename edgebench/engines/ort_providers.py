"""Which of ONNX Runtime's execution providers work here: each is tried on a graph of one node."""

from __future__ import annotations

from edgebench.engines.base import Availability
from edgebench.errors import one_line

GRAPH = (
    b'\x08\x08\x12\x00:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)
"""y = Identity(x), float32 [1], opset 17."""
SUFFIX = "ExecutionProvider"
NO_DEVICE = ("azure",)
"""Providers that compute nothing here."""


def available(wanted: str | None) -> Availability:
    """What this ONNX Runtime can do.

    Args:
        wanted: the only provider that counts, such as 'tensorrt'; None: any.
    """
    import onnxruntime

    names = {name.removesuffix(SUFFIX).lower(): name for name in onnxruntime.get_available_providers()}
    devices = {short: _failure(name) for short, name in sorted(names.items()) if _counts(short, wanted)}
    runs = any(reason is None for reason in devices.values())
    reason = None
    if not runs and wanted is not None:
        reason = (
            devices.get(wanted) or f"this ONNX Runtime has no provider {wanted!r}; it has {', '.join(sorted(names))}"
        )
    return Availability(
        runs=runs,
        reason=reason,
        install=None if runs else "pip install 'edgebench[gpu]' in place of onnxruntime",
        versions={"onnxruntime": onnxruntime.__version__},
        devices=devices,
    )


def _counts(short: str, wanted: str | None) -> bool:
    return short not in NO_DEVICE if wanted is None else short == wanted


def _failure(provider: str) -> str | None:
    """Why a provider cannot be used; None where it can."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(GRAPH, options, providers=[provider])
    except Exception as error:  # ONNX Runtime raises its own untyped exceptions
        return one_line(error)
    used = session.get_providers()
    return None if used and used[0] == provider else f"ONNX Runtime falls back to {', '.join(used)}"
