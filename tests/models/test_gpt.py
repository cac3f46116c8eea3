"""GPT: sizes, initial weights, causality, and logits compared with transformers' Llama."""

import math

import pytest
import torch

from models.gpt import SIZES, Size, gpt


def test_parameters() -> None:
    for name, beside_the_embedding in (("tiny", 395_904), ("mini", 3_955_456), ("small", 84_953_856)):
        with torch.device("meta"):
            model = gpt(num_words=50_257, size=name)
        assert model.decoder.weight is model.embedding.weight
        found = sum(p.numel() for p in model.parameters())
        assert found == beside_the_embedding + 50_257 * SIZES[name].width
    assert found == 123_551_232


def test_initial_weights() -> None:
    torch.manual_seed(0)
    model = gpt(num_words=1000, size="mini")
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            assert (parameter == 1).all()
        else:
            expected = 0.02 / math.sqrt(10) if name.endswith("_out.weight") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.02), name
    logits, _ = model(torch.arange(1000).view(4, 250))
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.arange(1000).roll(7))
    assert losses.item() == pytest.approx(math.log(1000), abs=0.2)


def test_a_token_depends_on_no_later_one_and_runs_are_alike() -> None:
    torch.manual_seed(0)
    model = gpt(num_words=50)
    tokens = torch.randint(50, (3, 9))
    changed = torch.cat([tokens[:, :5], (tokens[:, 5:] + 1) % 50], 1)
    (logits, hidden), (others, _) = model(tokens), model(changed, ())
    assert logits.shape == (3, 9, 50) and hidden == ()
    torch.testing.assert_close(others[:, :5], logits[:, :5])
    assert not torch.isclose(others[:, 5:], logits[:, 5:]).all(-1).any()
    assert torch.equal(model(tokens)[0], logits)


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_logits_are_those_of_llama(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two layers, and all weights drawn wider than the initial ones."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setitem(SIZES, size, Size(2, *SIZES[size][1:]))
    _, width, heads = SIZES[size]
    torch.manual_seed(0)
    ours = gpt(num_words=50, size=size)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, 1 if parameter.dim() == 1 else 0, 0.1)
    hidden = ours.layers[0].hidden
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=50,
            hidden_size=width,
            intermediate_size=hidden,
            num_hidden_layers=2,
            num_attention_heads=heads,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
        )
    )
    state = {"model.embed_tokens.weight": ours.embedding.weight, "model.norm.weight": ours.norm.weight}
    for number, layer in enumerate(ours.layers):
        queries, keys, values = layer.queries_keys_values.weight.chunk(3)
        gate, up = layer.gate_up.weight.chunk(2)
        parts = {
            "input_layernorm": layer.attention_norm.weight,
            "self_attn.q_proj": queries,
            "self_attn.k_proj": keys,
            "self_attn.v_proj": values,
            "self_attn.o_proj": layer.attention_out.weight,
            "post_attention_layernorm": layer.feed_forward_norm.weight,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.feed_forward_out.weight,
        }
        state |= {f"model.layers.{number}.{name}.weight": weight for name, weight in parts.items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected  # tied
    tokens = torch.randint(50, (2, 70))
    expected = theirs(tokens).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(ours(tokens)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", ["large", None, 124])
def test_unknown_sizes_are_refused(size: object) -> None:
    with pytest.raises(ValueError, match=f"model.size must be one of tiny, mini, small, got {size!r}"):
        gpt(num_words=10, size=size)
