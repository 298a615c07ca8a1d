"""Writes a tiny Llama without weights for a real engine: make_tiny_model.py FOLDER, in the engine's environment.

The engine fills the weights itself (`--load-format dummy`), so what it says is noise; its scheduler, its KV cache and
its clock are the real ones. Every token decodes to visible text, so that one token is one non-empty chunk.
"""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 270
CONTEXT_TOKENS = 8192
SPECIAL = ["<unk>", "<s>", "</s>"]
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A server that takes every request serves none of them well.",
    "Please summarise the following report in three short sentences.",
    "def limit(tokens: int, budget: int) -> bool: return tokens <= budget",
    "Once upon a time there was a queue that nobody watched.",
    "user: hello! assistant: hello, how can I help you today?",
]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": CONTEXT_TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def tokenizer() -> Tokenizer:
    """A byte-pair tokenizer over printable ASCII, trained on the few texts above."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = [*string.ascii_letters, *string.digits, *string.punctuation, "\u0120", "\u010a"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=1,
        special_tokens=SPECIAL,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


def write(folder: Path) -> None:
    """Put all files that an engine asks for into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    files: dict[str, dict[str, Any]] = {
        "config.json": CONFIG | {"vocab_size": made.get_vocab_size()},
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
        "tokenizer_config.json": names
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
