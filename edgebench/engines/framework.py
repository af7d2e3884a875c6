"""The checkpoint itself in transformers, eager: the reference that every compiled form is measured against.

The artifact says how pictures and prompts are made, and which checkpoint it came from; its graphs are not used.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgebench.engines.graphs import GraphEngine
from edgebench.errors import EdgebenchError, EngineError, UsageError, one_line
from edgebench.forged import of_logits
from edgebench.registry import load, lookup

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
CLASSES = {"llava": "LlavaForConditionalGeneration", "llava_next": "LlavaNextForConditionalGeneration"}
"""Family -> class in transformers."""


class TorchEngine(GraphEngine):
    """A checkpoint on one device, never on another one than was asked for."""

    NAME = "torch"
    OPTIONS: ClassVar[dict[str, str]] = {
        "dtype": "fp32 (as it is) or bf16: what weights are held and computed in",
        "probe": "an encoder's probe: its file",
        "recipe": "the recipe that the artifact was exported by, where it is not a shipped one: its file",
    }
    TAKES_WEIGHTS = True

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        """Find the checkpoint.

        Raises:
            CheckpointError: it is nowhere.
            EngineError: it is not the one that the artifact came from.
        """
        super().__init__(artifact, profile)
        self.device = options.get("provider", "cpu")
        self.dtype = options.get("dtype", "fp32")
        if self.dtype not in DTYPES:
            raise UsageError(f"the dtype {self.dtype!r} is unknown", hint=f"known: {', '.join(DTYPES)}")
        self.options = options
        if not profile.spinning:
            # OpenMP reads it when torch is loaded: in an engine's own process that is still to come.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        for package in ("torch", "transformers"):
            self.need(package, "export")
        manifest = self.artifact.manifest
        if manifest.preprocess is not None and manifest.preprocess.dtype != "float32":
            raise EngineError(f"the checkpoint takes float32 pixels, this artifact {manifest.preprocess.dtype}")
        if manifest.text_input is not None:
            raise EngineError("the checkpoint of a classifier of text is not run here", hint="take --engine ort")
        self.weights = self._find()
        self._check()
        self._model: Any = None
        self._past: Any = None

    def __enter__(self) -> Self:
        import torch

        if self.profile.threads is not None:
            torch.set_num_threads(self.profile.threads)
        try:
            available = torch.device(self.device).type == "cpu" or (
                torch.device(self.device).type == "cuda" and torch.cuda.is_available()
            )
        except RuntimeError:
            available = False
        if not available:
            raise EngineError(
                f"torch has no device {self.device!r} here", hint="--provider cpu, or cuda with its driver"
            )
        torch.backends.cudnn.allow_tf32 = False
        self._model = self._load().to(self.device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model = self._past = None

    def facts(self) -> dict[str, Any]:
        """Versions, device, type, threads, and the checkpoint's identity."""
        import torch
        import transformers

        on = torch.device(self.device)
        return {
            "engine": "torch",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": self.device if on.type == "cpu" else torch.cuda.get_device_name(on),
            "precision": self.dtype,
            "attention": "eager",
            "threads": torch.get_num_threads(),
            "checkpoint": f"{self.weights.name}, sha256 {self.artifact.manifest.source.sha256[:12]}",
        }

    def classify(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        """P(forged). float32 [N, 3, H, W] -> float64 [N]."""
        logits = self._asked(lambda torch: self._classified(torch, pixels))
        return of_logits(logits, (0,) if self.artifact.manifest.family == "encoder" else self._model.FORGED)

    def see(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [tiles, 3, H, W] -> float32 [tiles * tokens, hidden]."""
        from edgebench.checkpoints.vision import VisionPart

        features = self._asked(lambda torch: VisionPart(self._model)(torch.from_numpy(pixels).to(self.device)))
        return features.reshape(-1, features.shape[-1])

    def prefill(self, ids: NDArray[np.int64], features: NDArray[np.float32], *, keep: int = 0) -> NDArray[np.float32]:
        """float32 [vocab] behind the prompt."""
        return self._asked(lambda torch: self._prefilled(torch, ids, features, keep))

    def step(self, token: int) -> NDArray[np.float32]:
        """float32 [vocab] behind one more token."""
        return self._asked(lambda torch: self._read(self._embedded(torch.tensor([[token]], device=self.device))))

    def _asked(self, call: Any, *, inference: bool = True) -> NDArray[np.float32]:
        """What a call gives, on the host: it has been waited for."""
        import torch

        try:
            with warnings.catch_warnings(), torch.inference_mode(inference):
                warnings.simplefilter("ignore")
                out: NDArray[np.float32] = call(torch).float().cpu().numpy()
        except EdgebenchError:
            raise
        except Exception as error:  # torch and transformers raise many kinds
            raise EngineError(f"the checkpoint failed: {one_line(error)}") from error
        return out

    def _classified(self, torch: Any, pixels: NDArray[np.float32]) -> Any:
        shown = torch.from_numpy(pixels).to(self.device)
        if self.artifact.manifest.family == "encoder":
            return self._model(shown)[0]
        return self._model.logits(shown.to(getattr(torch, DTYPES[self.dtype])))

    def relevance(
        self,
        pixels: NDArray[np.float32],
        used: NDArray[np.int64],
        ids: NDArray[np.int64],
        answer: tuple[list[int], list[int]],
    ) -> tuple[NDArray[np.float32], float]:
        """How much each patch counts for an answer: attention times gradient, see `edgebench.engines.attention`.

        Args:
            pixels: float32 [tiles, 3, H, W].
            used: int64 [image tokens]; which features of all tiles stand in the prompt, in order.
            ids: int64 [tokens], the image tokens in place.
            answer: tokens of the answer, and of what it is set against (none: against all).

        Returns:
            float32 [tiles, patches], and the answer's ln P (or log-odds).

        Raises:
            EngineError: the model is no LLaVA, or shows no attention.
        """
        text = self.artifact.manifest.text
        if self.artifact.manifest.family not in CLASSES or text is None or text.images is None:
            raise EngineError("this model has no attention to look at here", hint="take --method occlusion")
        images, value = text.images, 0.0

        def call(torch: Any) -> Any:
            nonlocal value
            from edgebench.engines.attention import relevance

            shown, asked = (torch.from_numpy(a).to(self.device) for a in (pixels, ids))
            found, value = relevance(
                self._model, shown, torch.from_numpy(used), asked, asked == images.id, self._placed, answer
            )
            return found

        return self._asked(call, inference=False), value

    def _placed(self, asked: Any, features: Any) -> Any:
        """Embeddings [1, tokens, hidden] of a prompt, the features in their places."""
        text = self.artifact.manifest.text
        images = None if text is None else text.images
        places = asked == (-1 if images is None else images.id)
        ends = asked == (-1 if images is None or images.newline_id is None else images.newline_id)
        if int(places.sum()) != len(features):
            raise EngineError(f"the prompt holds {int(places.sum())} image tokens, the images give {len(features)}")
        # The embedding may have no row for either.
        embeds = self._embedded((asked * ~(places | ends))[None])
        embeds[0, places] = features.to(embeds)
        if ends.any():
            embeds[0, ends] = self._model.model.image_newline.to(embeds)
        return embeds

    def _prefilled(self, torch: Any, ids: NDArray[np.int64], features: NDArray[np.float32], keep: int) -> Any:
        from transformers.cache_utils import DynamicCache

        embeds = self._placed(torch.from_numpy(ids).to(self.device), torch.from_numpy(features))
        if keep == 0 or self._past is None:
            self._past, keep = DynamicCache(), 0
        elif (more := self._past.get_seq_length() - keep) > 0:
            self._past.crop(-more)
        return self._read(embeds[:, keep:])

    def _embedded(self, ids: Any) -> Any:
        return self._model.get_input_embeddings()(ids)

    def _read(self, embeds: Any) -> Any:
        """Logits behind the last of these embeddings [1, tokens, hidden]."""
        decoder = getattr(self._model.model, "language_model", self._model.model)
        out = decoder(inputs_embeds=embeds, past_key_values=self._past, use_cache=True)
        self._past = out.past_key_values
        return self._model.lm_head(out.last_hidden_state[:, -1])[0]

    def _find(self) -> Path:
        """The checkpoint, as given or where the recipe says."""
        from pathlib import Path

        from edgebench.checkpoints.files import fetch, find_weights, looks_like_hub_id

        given = self.options.get("weights")
        if given is not None and Path(given).expanduser().exists():
            return Path(given).expanduser()
        if given is not None and looks_like_hub_id(given):
            return fetch(given)
        return find_weights(self._recipe(), given)

    def _recipe(self) -> Any:
        from edgebench.recipes import load_recipe

        name = self.artifact.manifest.name
        try:
            return load_recipe(self.options.get("recipe", name))
        except UsageError as error:
            raise UsageError(
                f"no recipe {name!r} says what the checkpoint is",
                hint="pass --weights, and for a classifier or an encoder --option recipe=FILE",
            ) from error

    def _files(self) -> list[Path]:
        """Whose SHA-256 make the identity of the checkpoint."""
        family = self.artifact.manifest.family
        if family == "classifier":
            recipe = self._recipe()
            file = self.weights if self.weights.is_file() else self.weights / (recipe.weights_file or "")
            return [file, *map(file.with_name, recipe.beside)]
        if self.weights.is_file():
            return [self.weights]
        probe = [self._probe()] if family == "encoder" else []
        return [*sorted(self.weights.glob("*.safetensors")), *probe]

    def _probe(self) -> Path:
        from pathlib import Path

        if "probe" not in self.options:
            raise UsageError("an encoder is asked with its probe", hint="pass --option probe=FILE")
        return Path(self.options["probe"]).expanduser()

    def _check(self) -> None:
        from edgebench.manifest import sha256_file

        source = self.artifact.manifest.source
        try:
            found = {sha256_file(path) for path in self._files()}
        except OSError as error:
            raise EngineError(f"cannot be read: {error.strerror or error}", where=error.filename) from error
        if found != set(source.files.values()):
            raise EngineError(
                f"is not what the artifact came from ({source.name}: {', '.join(sorted(source.files)[:3])})",
                where=self.weights,
                hint="pass --weights with that checkpoint, in transformers' layout",
            )

    def _load(self) -> Any:
        import torch

        from edgebench.checkpoints.reference import load_reference

        family, dtype = self.artifact.manifest.family, DTYPES[self.dtype]
        if family == "classifier":
            from edgebench.checkpoints.networks import NETWORKS

            network = load(lookup(NETWORKS, self._recipe().network or "", what="network"))(self._files()[0])
            return network.to(getattr(torch, dtype)).eval()
        if family == "encoder":
            return self._probed(dtype)
        if self.weights.is_file():
            rest: dict[str, Any] = {"gguf_file": self.weights.name, "use_safetensors": None}
            return load_reference(self.weights.parent, "AutoModelForCausalLM", dtype=dtype, **rest)
        return load_reference(self.weights, CLASSES.get(family, "AutoModelForCausalLM"), dtype=dtype)

    def _probed(self, dtype: str) -> Any:
        from edgebench.checkpoints.encoders import ENCODERS, encoder_configuration, load_encoder
        from edgebench.checkpoints.probe import ProbedEncoder, read_probe

        recipe = self._recipe()
        architecture = lookup(ENCODERS, recipe.encoder or "", what="encoder")
        kind, config = encoder_configuration(self.weights, architecture)
        encoder = load_encoder(self.weights, kind, config, dtype)
        return ProbedEncoder(
            encoder,
            recipe.feature or architecture.features[0],
            read_probe(self._probe(), unit_length=recipe.unit_length),
        ).eval()
