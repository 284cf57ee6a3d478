"""A tiny llama with random weights: obeys a grammar, knows nothing, needs no download.

The weights come from a fixed seed, so every run makes the same file, and Ollama the same
model digest.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

CONTEXT = 2048
SEED = 20_240
_WIDTH, _HIDDEN, _HEADS, _LAYERS = 64, 128, 4, 2


def vocabulary() -> tuple[list[bytes], list[float], list[int]]:
    """354 tokens: three control tokens, 256 bytes, printable ASCII with its space as U+2581."""
    kind = gguf.TokenType
    tokens = [b"<unk>", b"<s>", b"</s>"]
    types = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL]
    tokens += [b"<0x%02X>" % byte for byte in range(256)]
    types += [kind.BYTE] * 256
    tokens += [bytes([code]) for code in range(0x21, 0x7F)] + ["\u2581".encode()]
    types += [kind.NORMAL] * 95
    return tokens, [0.0] * 259 + [-1.0] * 95, [int(t) for t in types]


def make_gguf(path: Path) -> Path:
    """Write the model file, about half a megabyte."""
    random = np.random.default_rng(SEED)
    tokens, scores, types = vocabulary()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("random-weights")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def weights(name: str, *shape: int) -> None:
        drawn = random.standard_normal(shape, dtype=np.float32) * np.float32(shape[-1] ** -0.5)
        writer.add_tensor(name, drawn)

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(_WIDTH, dtype=np.float32))

    weights("token_embd.weight", len(tokens), _WIDTH)
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"{block}.{part}.weight", _WIDTH, _WIDTH)
        ones(f"{block}.ffn_norm.weight")
        weights(f"{block}.ffn_gate.weight", _HIDDEN, _WIDTH)
        weights(f"{block}.ffn_up.weight", _HIDDEN, _WIDTH)
        weights(f"{block}.ffn_down.weight", _WIDTH, _HIDDEN)
    ones("output_norm.weight")
    weights("output.weight", len(tokens), _WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
