"""Folders: what loads, what is refused and why, and that what is saved is what was trained."""

from __future__ import annotations

import json

import pytest
import torch
from huggingface_hub import constants
from peft import LoraConfig as PeftConfig
from peft import get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from groupwise.causal_lm.config import CausalLMConfig, LoraConfig, SmallModelConfig
from groupwise.causal_lm.loading import add_lora, check_folder, load, prepared, save, unused_rows
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.config import ConfigError
from groupwise.memory import peak_bytes

SHAPE = SmallModelConfig(hidden_size=16, intermediate_size=24, num_heads=4, num_key_value_heads=2, max_positions=64)
TEXT = "ab  cab\n\n a\tdog \n"


@pytest.fixture
def folder(tmp_path):
    tokenizer = character_tokenizer("abcdog \n\t", words=["cab", "ca"], special=["<|user|>"])
    save(small_model(SHAPE, tokenizer, seed=1), tokenizer, tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_comes_back_as_it_was_saved(folder):
    tokenizer = character_tokenizer("abcdog \n\t", words=["cab", "ca"], special=["<|user|>"])
    model = small_model(SHAPE, tokenizer, seed=1)
    loaded = load(CausalLMConfig(path=str(folder)))
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    torch.testing.assert_close(loaded.model(ids).logits, model(ids).logits, rtol=0, atol=0)
    assert loaded.model.config.model_type == "qwen3"
    assert not (small_model(SHAPE, tokenizer, seed=2).lm_head.weight == model.lm_head.weight).all()


def test_the_saved_tokenizer_keeps_ids_and_white_space(folder):
    ours, theirs = (
        character_tokenizer("abcdog \n\t", words=["cab", "ca"], special=["<|user|>"]),
        AutoTokenizer.from_pretrained(folder),
    )
    ids = ours(TEXT)["input_ids"]
    assert theirs(TEXT)["input_ids"] == ids
    assert theirs.decode(ids) == ours.decode(ids) == TEXT
    assert theirs.decode(ids, clean_up_tokenization_spaces=False) == TEXT
    assert ours.convert_ids_to_tokens(ids)[:5] == ["a", "b", " ", " ", "cab"]
    marked = "<|user|>a b<|end|>"
    assert theirs(marked)["input_ids"] == ours(marked)["input_ids"]
    assert theirs.decode(theirs(marked)["input_ids"], skip_special_tokens=True) == "a b"
    assert (theirs.pad_token_id, theirs.eos_token_id) == (0, 1)
    assert theirs("aZ")["input_ids"] == [ours.convert_tokens_to_ids("a"), 2]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"no config\.json"),
        (
            lambda f: (f / "config.json").rename(f / "adapter_config.json"),
            "an adapter without its model; merge it once",
        ),
        (lambda f: edit(f / "config.json", intermediate_size=7), r"other shapes than its config\.json says"),
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer in it"),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), r"pickle files \(\.bin\)"),
        (lambda f: (f / "model.safetensors").unlink(), "no weights"),
        (lambda f: (f / "model.safetensors").write_bytes(b"not safetensors"), "cannot load"),
        (lambda f: edit(f / "config.json", model_type="bert"), "cannot load|lack"),
        (
            lambda f: edit(f / "config.json", num_hidden_layers=3, layer_types=["full_attention"] * 3),
            r"lack \d+ tensors \(model\.layers\.2",
        ),
        (lambda f: edit(f / "config.json", vocab_size=5), "other shapes than"),
    ],
)
def test_a_spoilt_folder_is_refused_with_the_reason(folder, spoil, message):
    spoil(folder)
    with pytest.raises(ConfigError, match=message) as error:
        load(CausalLMConfig(path=str(folder)))
    assert str(folder) in str(error.value)


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def without(path, *keys):
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in keys}))


def test_a_missing_folder_is_not_looked_for_on_the_hub(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        load(CausalLMConfig(path=str(tmp_path / "nowhere")))


def test_a_name_of_a_hub_that_does_not_answer_is_an_error_at_once(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        ConfigError, match=r"'somebody/small': there is no such folder here, .* the hub cannot be reached"
    ):
        check_folder("somebody/small")


def test_pad_falls_back_to_eos_and_eos_to_the_model(folder):
    without(folder / "tokenizer_config.json", "pad_token")
    assert load(CausalLMConfig(path=str(folder))).tokenizer.pad_token == "<|end|>"
    without(folder / "tokenizer_config.json", "eos_token")
    assert load(CausalLMConfig(path=str(folder))).tokenizer.eos_token == "<|end|>"
    edit(folder / "config.json", eos_token_id=None)
    (folder / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match=r'write "eos_token".*tokenizer_config\.json'):
        load(CausalLMConfig(path=str(folder)))


def test_lora_trains_only_the_adapter_and_saves_merged(folder, tmp_path):
    loaded = load(
        CausalLMConfig(path=str(folder), lora=LoraConfig(r=2, alpha=8.0, target_modules=("q_proj", "down_proj")))
    )
    names = [name for name, p in loaded.model.named_parameters() if p.requires_grad]
    assert len(names) == 8
    assert all("lora_" in name for name in names)
    ids = torch.tensor([[3, 4, 5, 6]])
    plain = loaded.model(ids).logits
    with torch.no_grad():
        for name, p in loaded.model.named_parameters():
            if "lora_B" in name:
                p.normal_()
    before = {name: p.clone() for name, p in loaded.model.named_parameters()}
    adapted = loaded.model(ids).logits
    assert (adapted - plain).abs().max() > 1e-3
    with loaded.model.disable_adapter():
        torch.testing.assert_close(loaded.model(ids).logits, plain, rtol=0, atol=0)
    save(loaded.model, loaded.tokenizer, tmp_path / "merged")
    torch.testing.assert_close(
        AutoModelForCausalLM.from_pretrained(tmp_path / "merged")(ids).logits, adapted, rtol=1e-5, atol=1e-5
    )
    assert not list((tmp_path / "merged").glob("adapter*"))
    for name, p in loaded.model.named_parameters():
        assert torch.equal(p, before[name])
    save(loaded.model, loaded.tokenizer, tmp_path / "adapter", merge=False)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_unknown_target_modules_are_named(folder):
    with pytest.raises(ConfigError, match=r"target_modules = \['query'\].*q_proj"):
        add_lora(load(CausalLMConfig(path=str(folder))).model, LoraConfig(target_modules=("query",)))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_folders_dropout_is_off_unless_it_is_to_be_kept(model_of, tmp_path, family):
    rates = (
        {"attn_pdrop": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5} if family == "gpt2" else {"attention_dropout": 0.5}
    )
    model_of(family, **rates).save_pretrained(tmp_path)
    character_tokenizer("abc").save_pretrained(tmp_path)
    ids = torch.tensor([[3, 4, 5, 3]])
    for kept in (False, True):
        loaded = load(CausalLMConfig(path=str(tmp_path), dropout="kept" if kept else "off"))
        expected = loaded.model.eval()(ids).logits
        assert torch.equal(loaded.model.train()(ids).logits, expected) is not kept
    loaded = load(CausalLMConfig(path=str(tmp_path), lora=LoraConfig(r=1, dropout=0.5)))
    assert {
        module.p
        for name, module in loaded.model.named_modules()
        if "lora_dropout" in name and isinstance(module, torch.nn.Dropout)
    } == {0.5}
    save(loaded.model, loaded.tokenizer, tmp_path / "again")
    named = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {name: named[name] for name in rates} == rates


@pytest.mark.parametrize(
    "change",
    [
        {"num_heads": 4, "num_key_value_heads": 3},
        {"hidden_size": 18, "num_heads": 4},
        {"hidden_size": 12, "num_heads": 4},
    ],
)
def test_a_shape_that_cannot_be_is_refused(change):
    with pytest.raises(ValueError, match=r"divisor|multiple|even"):
        SmallModelConfig(**change)


@pytest.mark.parametrize("known", [True, False])
def test_a_folders_own_code_does_not_run_and_nobody_is_asked(folder, tmp_path, monkeypatch, known):
    marker = tmp_path / "PWNED"
    (folder / "theirs.py").write_text(f"open({str(marker)!r}, 'w')\nclass Theirs: ...\n")
    classes = {
        "AutoConfig": "theirs.Theirs",
        "AutoModelForCausalLM": "theirs.Theirs",
        "AutoTokenizer": ["theirs.Theirs", None],
    }
    edit(folder / "config.json", auto_map=classes, **({} if known else {"model_type": "theirs"}))
    edit(folder / "tokenizer_config.json", auto_map=classes, **({} if known else {"tokenizer_class": "Theirs"}))
    # Somebody at the terminal who says yes to everything.
    asked = []
    monkeypatch.setattr("builtins.input", lambda *question: asked.append(question) or "y")
    if known:
        load(CausalLMConfig(path=str(folder)))
    else:
        with pytest.raises(ConfigError):
            load(CausalLMConfig(path=str(folder)))
    assert not asked
    assert not marker.exists()


def test_merging_an_adapter_copies_the_weights_that_it_adapts_and_no_others(folder, tmp_path):
    loaded = load(CausalLMConfig(path=str(folder), lora=LoraConfig(r=2, target_modules=("q_proj",))))
    before = {name: (value.clone(), value.requires_grad) for name, value in loaded.model.named_parameters()}
    adapted = sum(value.nbytes for name, (value, _) in before.items() if "q_proj" in name)
    whole = sum(value.nbytes for value, _ in before.values())
    # Merging computes each difference, of the size of the weight, beside the copies.
    room = 2 * adapted
    assert room < whole
    assert peak_bytes(lambda: save(loaded.model, loaded.tokenizer, tmp_path / "merged"), torch.device("cpu")) <= room
    for name, value in loaded.model.named_parameters():
        assert torch.equal(value, before[name][0]), name
        assert value.requires_grad == before[name][1], name


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bitsandbytes"),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "of next year"}, "of next year"),
    ],
)
def test_quantised_weights_are_refused_before_they_are_read(folder, settings, name):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    (folder / "model.safetensors").write_bytes(b"not read")
    for key in ("quantization_config", "compression_config"):
        file.write_text(json.dumps({**config, key: settings}))
        with pytest.raises(
            ConfigError, match=rf"its weights are quantised \({name}\).*give the model as it was before"
        ):
            load(CausalLMConfig(path=str(folder), lora=LoraConfig(r=2)))


def test_a_quantised_model_that_a_program_holds_is_refused():
    tokenizer = character_tokenizer("ab")
    model = small_model(SHAPE, tokenizer, seed=1)
    model.config.quantization_config = BitsAndBytesConfig(load_in_4bit=True)
    for held in (model, add_lora(model, LoraConfig(r=2))):
        with pytest.raises(ConfigError, match=r"model: its weights are quantised \(bitsandbytes\)"):
            prepared(held, tokenizer)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_modules": ["lm_head"]}, "has an adapter on it; take lm_head out of target_modules"),
        (
            {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
            "ensure_weight_tying",
        ),
        ({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, "out of modules_to_save"),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 2]}, "leave trainable_token_indices out"),
    ],
)
def test_an_adapter_that_reaches_the_head_is_told_by_the_setting_that_put_it_there(settings, message):
    tokenizer = character_tokenizer("ab")
    model = small_model(SHAPE, tokenizer, seed=1)
    with pytest.raises(ConfigError, match=message):
        prepared(get_peft_model(model, PeftConfig(task_type="CAUSAL_LM", r=2, **settings)), tokenizer)


def test_a_second_adapter_is_refused():
    tokenizer = character_tokenizer("ab")
    model = add_lora(small_model(SHAPE, tokenizer, seed=1), LoraConfig(r=2))
    with pytest.raises(ConfigError, match=r"it has an adapter already, which is trained; leave domain.model.lora out"):
        prepared(model, tokenizer, lora=LoraConfig(r=2))


def test_rows_of_the_embedding_table_that_no_token_uses_are_told():
    tokenizer = character_tokenizer("ab")
    model = small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0)
    assert unused_rows(model, tokenizer) == []
    model.resize_token_embeddings(len(tokenizer) + 7)
    assert unused_rows(model, tokenizer)[0].startswith("model: its embedding table has 7 rows that none of")
