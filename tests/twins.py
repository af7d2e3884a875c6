"""Small models with random weights and true shapes, and benchmark files in the published form, made on the spot."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

IMAGE_TOKEN = "<image>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
WORDS = [
    "A",
    "B",
    "C",
    "D",
    "E",
    "yes",
    "no",
    "Yes",
    "No",
    ".",
    ",",
    ":",
    ";",
    "?",
    "!",
    '"',
    "'",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "x",
    "y",
    "w",
    "h",
    "-",
    "USER",
    "ASSISTANT",
    "Answer",
    "with",
    "the",
    "option",
    "s",
    "letter",
    "from",
    "given",
    "choices",
    "directly",
    "What",
    "is",
    "authenticity",
    "of",
    "image",
    "AI",
    "generated",
    "non",
    "manipulated",
    "Which",
    "segmentation",
    "map",
    "denotes",
    "forged",
    "area",
    "in",
    "most",
    "accurately",
    "Candidate",
    "Please",
    "locate",
    "frames",
    "set",
    "which",
    "are",
    "sampled",
    "video",
    "or",
    "Is",
    "this",
    "that",
    "by",
    "and",
]


def tokenizer() -> Any:
    """A word-level tokenizer with LLaVA's special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    special = ["<pad>", "<s>", "</s>", "<unk>", IMAGE_TOKEN]
    vocabulary = {w: i for i, w in enumerate([*special, *dict.fromkeys(WORDS), "\n"])}
    tok = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\n|[A-Za-z]+|\d|[^\w\s]"), "removed", invert=True)]
    )
    tok.decoder = decoders.WordPiece(prefix="##")
    tok.add_special_tokens(special)
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tok


def write_llava(folder: Path, *, seed: int = 0, layers: int = 2, image_size: int = 28) -> Path:
    """A LLaVA checkpoint with random weights, as transformers writes it."""
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    torch.manual_seed(seed)
    tok = tokenizer()
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=image_size,
            patch_size=14,
            projection_dim=32,
        ),
        text_config=LlamaConfig(
            vocab_size=tok.get_vocab_size(),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        image_token_index=tok.token_to_id(IMAGE_TOKEN),
    )
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.5 / parameter.shape[-1] ** 0.5 if "embed" not in name else 0.5)
        model.lm_head.weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    tok.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT_TEMPLATE})
    )
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "CLIPImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": image_size},
                "do_center_crop": True,
                "crop_size": {"height": image_size, "width": image_size},
                "resample": 3,
                "image_mean": [0.48145466, 0.4578275, 0.40821073],
                "image_std": [0.26862954, 0.26130258, 0.27577711],
            }
        )
    )
    return folder


def write_llava_next(folder: Path, *, seed: int = 0) -> Path:
    """A LLaVA-NeXT checkpoint with random weights: tiles of 28 pixels, grids of two and four of them."""
    import torch
    from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration

    write_llava(folder, seed=seed)
    config = json.loads((folder / "config.json").read_text())
    grids = [[28, 56], [56, 28], [56, 56], [84, 28]]
    torch.manual_seed(seed)
    config = LlavaNextConfig.from_dict({**config, "model_type": "llava_next", "image_grid_pinpoints": grids})
    model = LlavaNextForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.5 / parameter.shape[-1] ** 0.5 if "embed" not in name else 0.5)
        model.lm_head.weight.normal_(0, 0.3)
        model.model.image_newline.normal_(0, 0.5)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    processor |= {"image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": grids}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def write_language(folder: Path, kind: str = "llama", *, seed: int = 0, tied: bool = False) -> Path:
    """A language model ('llama', 'qwen2' or 'mistral') with random weights, as transformers writes it."""
    import torch
    import transformers

    torch.manual_seed(seed)
    tok = tokenizer()
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=tok.get_vocab_size(), hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, bos_token_id=1, eos_token_id=2,
        pad_token_id=0, tie_word_embeddings=tied, sliding_window=None,
    )  # fmt: skip
    model: Any = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.5 / parameter.shape[-1] ** 0.5 if "embed" not in name else 0.3)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    tok.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'].upper() + ': ' + m['content'] }}{% endfor %} ASSISTANT:"
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "chat_template": template})
    )
    return folder


def write_encoder(folder: Path, kind: str, *, seed: int = 0, whole: bool = False) -> Path:
    """A vision encoder ('clip', 'siglip' or 'dinov2') with random weights, as transformers writes it.

    `whole`: with its text side, where it has one. Features have 24 (clip) or 64 values.
    """
    import torch
    import transformers

    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 14, "image_size": 56,
    }  # fmt: skip
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"vocab_size": 50, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 1}
    if kind == "dinov2":
        # as published: trained at another size than its processor makes
        config: Any = transformers.Dinov2Config(**(shape | {"image_size": 98}), layerscale_value=0.5)
        model: Any = transformers.Dinov2Model(config)
    elif kind == "clip" and whole:
        vision = shape | {"intermediate_size": 128, "projection_dim": 24}
        model = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
        )
    elif kind == "clip":
        vision_config = transformers.CLIPVisionConfig(**shape, intermediate_size=128, projection_dim=24)
        model = transformers.CLIPVisionModelWithProjection(vision_config)
    elif whole:
        vision = shape | {"intermediate_size": 128}
        model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))
    else:
        model = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**shape, intermediate_size=128))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.5 if "embed" in name or "probe" in name else parameter[0].numel() ** -0.5)
            elif "bias" in name:
                parameter.normal_(0, 0.1)
    model.save_pretrained(folder)
    half, clip = [0.5] * 3, ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
    imagenet = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    cropped = {"do_center_crop": True, "crop_size": {"height": 56, "width": 56}, "do_convert_rgb": True}
    settings: dict[str, Any] = {
        "clip": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}, **cropped,
                 "image_mean": clip[0], "image_std": clip[1]},
        "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 56, "width": 56},
                   "image_mean": half, "image_std": half},
        "dinov2": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 64}, **cropped,
                   "image_mean": imagenet[0], "image_std": imagenet[1]},
    }[kind]  # fmt: skip
    settings |= {"do_resize": True, "resample": 3, "do_rescale": True, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def write_probe(path: Path, features: int, *, seed: int = 0, classes: int = 1) -> Path:
    """A random linear probe as a torch state dict, .npz or .safetensors."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)
    tensors = {
        "weight": torch.randn(classes, features, generator=generator) * features**-0.5,
        "bias": torch.randn(classes, generator=generator) * 0.1,
    }
    if path.suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in tensors.items()})
    elif path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def picture(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """A small picture that compresses badly, different for each seed."""
    generator = np.random.default_rng(seed)
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """An image as the bytes of a file."""
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def b64(data: bytes) -> str:
    """Bytes as a TSV cell has them."""
    return base64.b64encode(data).decode()


BINARY = {"question": "What is the authenticity of the image?", "A": "AI-generated", "B": "non AI-generated"}
TASKS = {
    "human_entiresynthesis_gan_visibleimage_category": BINARY,
    "human_faceswaponeface_encoderdecoder_visibleimage_seg": {
        "question": "Which segmentation map denotes the forged area in the image most accurately?",
        **{c: f"Candidate {i}" for i, c in enumerate("ABCD", 1)},
    },
    "human_faceswaponeface_encoderdecoder_video_temporal": {
        "question": "Please locate the forged frames in the given set of frames.",
        **dict(zip("ABCD", ("[ 0, 1, 5 ]", "[ 1 ]", "[ 0 ]", "[ 0, 1 ]"), strict=True)),
    },
    "human_faceswaponeface_encoderdecoder_visibleimagetext_det": {
        "question": 'Please detect the forged area in the image and the forged text in the caption: "A cat".',
        **{c: f'{{ "forged area": [ [ {i}, 46, 358, 167 ] ], "forged text": [] }}' for i, c in enumerate("ABCD", 1)},
    },
}
"""One question of each of the four tasks, by category."""


def rows(count: int) -> list[dict[str, str]]:
    """Published-form rows: all four tasks in turn, one picture each."""
    found = []
    for i in range(count):
        slug = list(TASKS)[i % 4]
        letters = [c for c in "ABCD" if c in TASKS[slug]]
        found.append(
            {
                "index": str(i),
                "image": b64(encoded(picture(i))),
                "category": slug,
                "answer": letters[(i // 4) % len(letters)],
                **TASKS[slug],
            }
        )
    return found


def write_tsv(path: Path, table: list[dict[str, str]], columns: list[str] | None = None) -> Path:
    """A TSV as VLMEvalKit writes it: every cell quoted, UTF-8."""
    names = columns or ["index", "image", "question", "hint", "A", "B", "C", "D", "answer", "category", "split"]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, delimiter="\t", quoting=csv.QUOTE_ALL, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(table)
    return path
