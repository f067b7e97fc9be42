"""Models in GGUF files: read once into a plain folder, refused by what they lack."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.causal_lm import gguf
from groupwise.causal_lm.config import CausalLMConfig
from groupwise.causal_lm.loading import load
from groupwise.config import ConfigError

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}b"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A Llama of two layers in a GGUF file, and its tensors."""
    from gguf import GGUFWriter

    file, draws = tmp_path / "tiny.gguf", np.random.default_rng(0)
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_block_count(2)
    writer.add_feed_forward_length(24)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(4)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|endoftext|>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd.weight": (4, 16), "output_norm.weight": (16,)}
    for block in range(2):
        shapes |= {
            f"blk.{block}.{name}.weight": shape
            for name, shape in {
                "attn_norm": (16,),
                "ffn_norm": (16,),
                "attn_q": (16, 16),
                "attn_k": (8, 16),
                "attn_v": (8, 16),
                "attn_output": (16, 16),
                "ffn_gate": (24, 16),
                "ffn_up": (24, 16),
                "ffn_down": (16, 24),
            }.items()
        }
    tensors = {name: draws.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file, tensors


def test_a_file_becomes_a_plain_folder_once(written, cache: Path):
    file, tensors = written
    folder = Path(gguf.plain_folder(str(file)))
    assert folder.parent == cache / "models"
    assert folder.name.startswith("tiny-")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    model = AutoModelForCausalLM.from_pretrained(folder)
    weights = dict(model.named_parameters())
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert np.array_equal(weights["model.embed_tokens.weight"].detach().numpy(), tensors["token_embd.weight"])
    assert np.array_equal(
        weights["model.layers.1.mlp.down_proj.weight"].detach().numpy(), tensors["blk.1.ffn_down.weight"]
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False) == "abb"
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert gguf.plain_folder(str(file)) == str(folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_the_loader_takes_a_file_and_a_package(written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, _ = written
    assert load(CausalLMConfig(path=str(file))).tokenizer.eos_token == "<|endoftext|>"
    package = tmp_path / "with_a_model"
    package.mkdir()
    # Its own code must not run.
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    file.rename(package / file.name)
    monkeypatch.syspath_prepend(tmp_path)
    assert gguf.plain_folder("package:with_a_model") == gguf.plain_folder(str(package / file.name))
    (package / "other.gguf").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"with_a_model' are: .*other\.gguf, .*tiny\.gguf\. Write the path"):
        gguf.plain_folder("package:with_a_model")


def test_an_unreadable_gguf_file_is_an_error_and_leaves_no_folder(written, tmp_path: Path, cache: Path, monkeypatch):
    file, _ = written
    with pytest.raises(ConfigError, match=r"path = 'nowhere\.gguf': there is no such file"):
        gguf.plain_folder("nowhere.gguf")
    with pytest.raises(ConfigError, match="no package 'no_such_package' is installed"):
        gguf.plain_folder("package:no_such_package")
    with pytest.raises(ConfigError, match=r"no package '\.\./x' is installed"):
        gguf.plain_folder("package:../x")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ConfigError, match=r"transformers cannot read .*damaged\.gguf: "):
        gguf.plain_folder(str(damaged))
    assert not list((cache / "models").iterdir())


def test_without_its_reader_the_command_that_installs_it_is_said(written, monkeypatch: pytest.MonkeyPatch):
    file, _ = written
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(gguf, "find_spec", lambda name: None if name == "gguf" else find_spec(name))
    with pytest.raises(ConfigError, match=r"gguf is not installed; "):
        gguf.plain_folder(str(file))
