"""Prompt embeddings of SeFi-Image: hidden states of Qwen3-VL, concatenated, and cached on disk."""

import gc
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from lwd.errors import InputError, import_extra
from lwd.io.files import cache_dir, read_json, sha256
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.models.sefi import Prompts

KEY = "embeddings"
REASONS = (SafetensorError, OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError, ImportError)


@dataclass(frozen=True)
class TextSettings:
    """Which text encoder a model was trained with, and where it is."""

    directory: Path
    layers: tuple[int, ...] = (9, 18, 27)
    """Hidden states that are concatenated: 0 is the embedding, k the output of block k."""
    length: int = 512
    """Tokens of a prompt; shorter prompts are padded, longer ones are refused."""


@dataclass
class TextEncoder:
    """Prompts to `Prompts`. Weights are loaded when a prompt is not in the cache, and released by `free`."""

    settings: TextSettings
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    cache: Path | None = field(default_factory=lambda: cache_dir() / "prompts")
    """Directory of embeddings; None computes them every time."""
    _loaded: Any = field(default=None, repr=False)
    _lock: Any = field(default_factory=RLock, repr=False)
    """Batches of a training are read by several threads."""

    def __call__(self, prompts: Sequence[str]) -> Prompts:
        """Embed prompts: (prompts, tokens, layers x width)."""
        if isinstance(prompts, str) or not prompts or not all(isinstance(text, str) for text in prompts):
            raise InputError(f"prompts must be a list of texts, got {prompts!r}", argument="prompts")
        rows = {text: self._cached(text) for text in dict.fromkeys(prompts)}
        for text, row in rows.items():
            if row is None:
                rows[text] = self._compute(text)
        return Prompts.of(torch.stack([row for text in prompts if (row := rows[text]) is not None]))

    def missing(self, prompts: Sequence[str]) -> list[str]:
        """The prompts, each once, that are not in the cache."""
        return [text for text in dict.fromkeys(prompts) if (path := self._path(text)) is None or not path.is_file()]

    def fill(self, prompts: Sequence[str]) -> None:
        """Write the embeddings of prompts to the cache, one at a time; their lengths are checked first."""
        for text in prompts:
            self._chat(self._load()[1], text)
        for text in prompts:
            self._compute(text)

    def fingerprint(self) -> str:
        """Which embeddings it computes, independent of directory and precision: for the record of a training."""
        s = self.settings
        return f"{sha256(self._config())} {s.layers} {s.length}"

    def free(self) -> None:
        """Release the weights; they are loaded again when needed."""
        self._loaded = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def _cached(self, text: str) -> Tensor | None:
        path = self._path(text)
        if path is None or not path.is_file():
            return None
        row = read_safetensors(path).get(KEY)
        return row if row is not None and row.ndim == 2 else None

    def _compute(self, text: str) -> Tensor:
        with self._lock:
            row = self._embed(text)
        if path := self._path(text):
            row = row.cpu()
            write_safetensors(path, {KEY: row})
        return row

    def _path(self, text: str) -> Path | None:
        if self.cache is None:
            return None
        s = self.settings
        content = f"{self._identity} {s.layers} {s.length} {self.dtype}\n{text}"
        return self.cache / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"

    @cached_property
    def _identity(self) -> str:
        """What decides the embeddings: small files by content, large ones by name, size and time."""
        lines = []
        for path in sorted(p for p in self._config().parent.iterdir() if p.is_file()):
            about = path.stat()
            small = path.suffix in (".json", ".jinja", ".txt") and about.st_size < 2**26
            lines.append(f"{path.name} {sha256(path) if small else f'{about.st_size} {about.st_mtime_ns}'}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _config(self) -> Path:
        path = self.settings.directory / "config.json"
        if not path.is_file():
            raise InputError(
                f"{path.parent} is not a text encoder (it has no config.json); the model's repository has Qwen3-VL in "
                "text_encoder/: download it, too"
            )
        return path

    @torch.no_grad()
    def _embed(self, text: str) -> Tensor:
        """Hidden states of one prompt, (tokens, layers x width). One at a time, so that no batch changes the bits."""
        model, tokenizer = self._load()
        s, tokens = self.settings, self._tokens(tokenizer, text)
        states = model(
            **{name: value.to(self.device) for name, value in tokens.items()},
            output_hidden_states=True,
            use_cache=False,
            return_dict=True,
        ).hidden_states
        if wrong := [layer for layer in s.layers if not -len(states) <= layer < len(states)]:
            raise InputError(f"{s.directory} has hidden states 0 to {len(states) - 1}, not {wrong[0]}")
        return torch.cat([states[layer][0] for layer in s.layers], -1)

    def _tokens(self, tokenizer: Any, text: str) -> dict[str, Tensor]:
        chat = self._chat(tokenizer, text)
        found = tokenizer(chat, return_tensors="pt", padding="max_length", max_length=self.settings.length)
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    def _chat(self, tokenizer: Any, text: str) -> str:
        """The prompt as a message to the text encoder; an error if it has too many tokens."""
        message = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        # enable_thinking: for templates that know it; others ignore it.
        chat: str = tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        count, most = len(tokenizer(chat)["input_ids"]), self.settings.length
        if count > most:
            start = text if len(text) <= 40 else f"{text[:40]}..."
            raise InputError(
                f"the prompt {start!r} has {count} tokens, at most {most} are allowed; shorten it", "prompts"
            )
        return chat

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            transformers = import_extra("transformers", "text", "embedding prompts")
            folder = str(self.settings.directory)
            _check_tokenizer(self.settings.directory)
            try:
                with _quiet(transformers.utils.logging):
                    # In parts of the library: the processor of Qwen3-VL would also need torchvision.
                    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
                    full, info = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
                        folder, dtype=self.dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
                    )
            except REASONS as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise InputError(f"{folder} is not a complete Qwen3-VL ({reason})") from error
            # transformers fills missing weights with random ones.
            if missing := sorted(name for name in info["missing_keys"] if "language_model" in name):
                raise InputError(f"{folder} is not a complete Qwen3-VL: it lacks {', '.join(missing[:8])}")
            if tokenizer.pad_token is None:
                raise InputError(f"{folder} has no padding token (pad_token in tokenizer_config.json)")
            tokenizer.chat_template = _template(self.settings.directory, tokenizer.chat_template)
            full.model.visual = None  # only text is embedded
            self._loaded = (full.model.eval().requires_grad_(False).to(self.device), tokenizer)
        return self._loaded


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """Without transformers' progress bar and its report of missing weights, which lwd refuses."""
    shown, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if shown:
            log.enable_progress_bar()


def _check_tokenizer(folder: Path) -> None:
    """Raise an error without the tokenizer's files: transformers would make one of no words."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise InputError(f"{folder} has no tokenizer (tokenizer.json)")


def _template(folder: Path, of_tokenizer: str | None) -> str:
    """The chat template of the processor, as the reference asks for it; without one that of the tokenizer.

    A file chat_template.jinja is the template of both.
    """
    path = folder / "chat_template.json"
    if of_tokenizer is not None and ((folder / "chat_template.jinja").is_file() or not path.is_file()):
        return of_tokenizer
    value = read_json(path)
    template = value.get("chat_template") if isinstance(value, dict) else None
    if not isinstance(template, str):
        raise InputError(f"{folder} has no chat template (chat_template.json or .jinja)")
    return template
