"""A model that goes to shards keeps its weights as its files have them until then, and is in every other way the one
that is loaded in the dtype asked for.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.learner.one_process import sharding
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
)

from groupwise.causal_lm import scoring
from groupwise.causal_lm.cache import character_tokenizer, small_model
from groupwise.causal_lm.config import CausalLMConfig, LoraConfig, SmallModelConfig, VllmEngine
from groupwise.causal_lm.engine import open_engine
from groupwise.causal_lm.engine.server import EngineError
from groupwise.causal_lm.loading import LoadedLM, load, save
from groupwise.causal_lm.sharded import ShardedLM
from groupwise.causal_lm.stored_weights import load_stored
from groupwise.config import ConfigError
from groupwise.domain.language.config import DataConfig, LanguageConfig, Pretrained
from groupwise.domain.language.data import Splits
from groupwise.domain.language.policy import LocalPolicy, open_policy
from groupwise.domain.language.source import Cups
from groupwise.learner.shards import local_part, process_mesh
from groupwise.streams import Streams

TOKENIZER = character_tokenizer("abcdefgh")
SIZES: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 12,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": None,
}


def qwen3(tied: bool) -> Any:
    return small_model(SmallModelConfig(hidden_size=16, num_heads=2, tied=tied), TOKENIZER, 0)


def llama() -> Any:
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    return LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rope, tie_word_embeddings=False))


def gemma3() -> Any:
    """Its embedding has a scale, sqrt(24), in a buffer that is not saved: bfloat16 would round it."""
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES))


def gpt2() -> Any:
    numbers = {"vocab_size": len(TOKENIZER), "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**numbers, bos_token_id=1, eos_token_id=1))


def gptj() -> Any:
    """Its table of rotations, a buffer that is not saved, takes part in products with states."""
    numbers = {"vocab_size": len(TOKENIZER), "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPTJForCausalLM(GPTJConfig(**numbers, rotary_dim=4, bos_token_id=1, eos_token_id=1))


FAMILIES = {
    "qwen3": lambda: qwen3(tied=True),
    "untied": lambda: qwen3(tied=False),
    "llama": llama,
    "gemma3": gemma3,
    "gpt2": gpt2,
    "gptj": gptj,
}


def folder_of(model: Any, dtype: torch.dtype, folder: Path) -> str:
    save(model.to(dtype), TOKENIZER, folder)
    return str(folder)


def shards(loaded: LoadedLM) -> dict[str, torch.Tensor]:
    """Weights and all buffers of the model once it is in shards, which one process holds whole."""
    with sharding():
        sharded = ShardedLM(loaded.backbone, process_mesh(torch.device("cpu")), loaded.dtypes).model
        named = [*sharded.named_parameters(), *sharded.named_buffers()]
        return {name: local_part(tensor).detach().clone() for name, tensor in named}


DTYPES = [("bfloat16", "float32"), ("float32", "bfloat16"), ("float32", "float64")]
ADAPTERS = {"whole": None, "lora": LoraConfig(r=2, target_modules="all-linear")}
ALL = list(itertools.product(FAMILIES, DTYPES, ADAPTERS))
FAST = {(family, DTYPES[place % 3], ("whole", "lora")[place // 3]) for place, family in enumerate(FAMILIES)}
"""Every family, and every pair of dtypes with an adapter and without."""


@pytest.mark.parametrize(
    ("family", "dtypes", "adapter"),
    [pytest.param(*case, marks=() if case in FAST else pytest.mark.slow) for case in ALL],
    ids=["-".join([family, *dtypes, adapter]) for family, dtypes, adapter in ALL],
)
def test_the_shards_are_those_of_a_model_in_the_dtype_asked_for(
    family: str, dtypes: tuple[str, Any], adapter: str, tmp_path: Path
) -> None:
    stored, dtype = dtypes
    torch.manual_seed(0)
    path = folder_of(FAMILIES[family](), getattr(torch, stored), tmp_path / "model")
    config = CausalLMConfig(path=path, dtype=dtype, lora=ADAPTERS[adapter])
    torch.manual_seed(1)
    plain = load(config)
    torch.manual_seed(1)
    loaded = load_stored(config)
    assert loaded is not None
    weights = [parameter for name, parameter in loaded.model.named_parameters() if "lora_" not in name]
    assert {parameter.dtype for parameter in weights} == {getattr(torch, stored)}
    assert loaded.backbone.config.to_dict() == plain.backbone.config.to_dict()
    assert loaded.backbone.config.dtype == plain.backbone.config.dtype
    assert loaded.backbone.trained_dtype == plain.backbone.trained_dtype == getattr(torch, dtype)
    assert {name: parameter.requires_grad for name, parameter in loaded.model.named_parameters()} == {
        name: parameter.requires_grad for name, parameter in plain.model.named_parameters()
    }
    expected, actual = shards(plain), shards(loaded)
    assert {name: tensor.dtype for name, tensor in actual.items()} == {
        name: tensor.dtype for name, tensor in expected.items()
    }
    assert {name: torch.equal(tensor, expected[name]) for name, tensor in actual.items()} == dict.fromkeys(
        expected, True
    )
    # The whole model has the dtype of its shards from then on, also before weights are gathered.
    assert {name: parameter.dtype for name, parameter in loaded.model.named_parameters()} == {
        name: parameter.dtype for name, parameter in plain.model.named_parameters()
    }


def anonymous_bytes() -> int:
    """Memory of this process that lies in no file."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is told apart by Linux alone")
def test_stored_weights_take_no_memory_of_the_process(tmp_path: Path) -> None:
    model = small_model(SmallModelConfig(hidden_size=512, intermediate_size=2048, num_layers=6), TOKENIZER, 0)
    num_bytes = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert num_bytes > 80 * 2**20
    config = CausalLMConfig(path=folder_of(model, torch.bfloat16, tmp_path / "model"), dtype="float32")
    del model
    before = anonymous_bytes()
    loaded = load_stored(config)
    assert loaded is not None
    assert anonymous_bytes() - before < num_bytes / 4


@pytest.mark.parametrize("lora", [None, LoraConfig(r=2, target_modules="all-linear")], ids=["whole", "lora"])
def test_weights_that_have_the_dtype_asked_for_among_others_stay_as_they_are(
    lora: LoraConfig | None, tmp_path: Path
) -> None:
    """Norms in fp32 beside matrices in bfloat16: half precision would round them."""
    path = folder_of(gemma3(), torch.bfloat16, tmp_path / "model")
    change_norms(Path(path), torch.float32)
    config = CausalLMConfig(path=path, dtype="float32", lora=lora)
    torch.manual_seed(1)
    plain = load(config)
    torch.manual_seed(1)
    loaded = load_stored(config)
    assert loaded is not None
    assert scoring.can_pack(loaded.backbone) == scoring.can_pack(plain.backbone)
    dtypes = {
        "norm" in name: parameter.dtype for name, parameter in loaded.model.named_parameters() if "lora" not in name
    }
    assert dtypes == {True: torch.float32, False: torch.bfloat16}
    expected, actual = shards(plain), shards(loaded)
    assert {name: torch.equal(tensor, expected[name]) for name, tensor in actual.items()} == dict.fromkeys(
        expected, True
    )


def change_norms(folder: Path, dtype: torch.dtype) -> None:
    """Gives the norms of a folder values of another dtype, which no lower one has."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    norms = {name: tensor.to(dtype) + torch.pi for name, tensor in tensors.items() if "norm" in name}
    save_file(tensors | norms, file, metadata={"format": "pt"})


def test_nothing_is_deferred_where_most_weights_have_the_dtype_or_several_others(tmp_path: Path) -> None:
    path = folder_of(qwen3(tied=True), torch.float32, tmp_path / "model")
    assert load_stored(CausalLMConfig(path=path, dtype="float32")) is None
    assert load_stored(CausalLMConfig(path=path)) is None
    change_norms(tmp_path / "model", torch.float64)
    assert load_stored(CausalLMConfig(path=path, dtype="float32")) is None
    assert load_stored(CausalLMConfig(path=path, dtype="bfloat16")) is None
    assert load_stored(CausalLMConfig(path=path, dtype="float64")) is not None


def test_a_file_without_a_number_is_loaded_plainly(tmp_path: Path) -> None:
    """What stands in for a weight until it is in shards is NaN, and must not be taken for a weight."""
    path = folder_of(qwen3(tied=True), torch.bfloat16, tmp_path / "model")
    change_norms(tmp_path / "model", torch.float32)
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][0] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises((ConfigError, ValueError), match="NaN"):
        load_stored(CausalLMConfig(path=path, dtype="float32"))


def test_several_files_are_read(tmp_path: Path) -> None:
    model = qwen3(tied=True).to(torch.bfloat16)
    save(model, TOKENIZER, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    config = CausalLMConfig(path=str(tmp_path), dtype="float32")
    loaded = load_stored(config)
    assert loaded is not None
    assert torch.equal(loaded.backbone.head.weight, model.lm_head.weight)
    # A file that did not arrive is named where the model is loaded.
    sorted(tmp_path.glob("model-*.safetensors"))[0].unlink()
    assert load_stored(config) is None


def opened(path: str, dtype: Any) -> LocalPolicy:
    model = Pretrained(path=path, dtype=dtype)
    config = LanguageConfig(
        model=model, data=DataConfig(source=Cups(), num_train=1, num_held_out=1), rewards={"length": {"kind": "length"}}
    )
    policy = open_policy(config, Splits((), {}), Streams(0), torch.device("cpu"), spreads=True)
    assert isinstance(policy, LocalPolicy)
    return policy


@pytest.mark.parametrize("family", [gptj, gemma3])
def test_what_a_model_computes_is_tried_in_the_dtype_of_its_files(family: Any, tmp_path: Path) -> None:
    """With weights of one dtype and tables of another, or weights of two, neither of these families computes."""
    path = folder_of(family(), torch.bfloat16, tmp_path / "model")
    if family is gemma3:
        change_norms(Path(path), torch.float32)
    policy = opened(path, "float32")
    assert policy.module.get_output_embeddings().weight.dtype == torch.bfloat16
    assert policy.backbone.tried is not policy.backbone
    with sharding():
        policy.learner.shard(torch.device("cpu"))
    assert policy.backbone.tried is policy.backbone, "its weights stay in memory"


def test_a_mixture_of_experts_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    config = Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2)
    config.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=r"the model is a mixture of experts.*write train\.sharding = none"):
        opened(str(tmp_path), "float32")


def test_a_model_that_cannot_be_put_together_so_is_loaded_in_the_dtype_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    path = folder_of(gpt2(), torch.bfloat16, tmp_path / "model")
    assert opened(path, "float32").module.dtype == torch.bfloat16
    monkeypatch.setattr(GPT2LMHeadModel, "from_pretrained", classmethod(refused))
    assert opened(path, "float32").module.dtype == torch.float32


def refused(kind: Any, path: str | None, *arguments: Any, **settings: Any) -> Any:
    """Loads a model from a folder alone."""
    if path is None:
        raise ValueError("without a folder")
    return super(GPT2LMHeadModel, kind).from_pretrained(path, *arguments, **settings)


def test_a_server_that_is_started_on_stored_weights_computes_in_the_dtype_that_is_trained(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\necho "Error: $*" >&2\nexit 3\n')
    program.chmod(0o755)
    path = folder_of(qwen3(tied=True), torch.bfloat16, tmp_path / "model")
    loaded = load_stored(CausalLMConfig(path=path, dtype="float32"))
    assert loaded is not None
    engine: Any = open_engine(VllmEngine(start=True, executable=str(program)), loaded.backbone, TOKENIZER)
    with pytest.raises(EngineError, match="--dtype float32"):
        engine._started.wait()
    engine.close()
