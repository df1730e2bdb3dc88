"""A model and a tokenizer small enough for one step on a processor, built here: nothing is downloaded."""

from typing import Any

TEMPLATE = """\
{%- if tools %}<|tools|>{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|end|>{% endif %}
{%- for message in messages %}<|{{ message.role }}|>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<|call|>{{ call.function.name }} {{ call.function.arguments }}{% endfor %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""Every message begins with its role, so that a conversation's beginning is the beginning of its text, as trainers need."""

REASONING_TEMPLATE = """\
{%- for message in messages %}<|{{ message.role }}|>{{ message.reasoning_content or '' }}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<|call|>{{ call.function.name }} {{ call.function.arguments }}{% endfor %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""With reasoning, as templates of reasoning models have it."""

TRAINING_TEMPLATE = """\
{%- for message in messages %}<|{{ message.role }}|>
{%- if message.role == 'assistant' %}{% generation %}{{ message.reasoning_content or '' }}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<|call|>{{ call.function.name }} {{ call.function.arguments }}{% endfor %}<|end|>
{%- endgeneration %}{% else %}{{ message.content or '' }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""The same, with marks around what the model generates, as `assistant_only_loss` needs them."""

SPECIAL = ["<|pad|>", "<|end|>", "<|call|>", "<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
POSITIONS = 4096


def tokenizer() -> Any:
    """One token for each byte, and one for each role."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=SPECIAL[0], eos_token=SPECIAL[1])
    wrapped.chat_template = TEMPLATE
    return wrapped


def config(**more: Any) -> Any:
    """A Llama of one layer."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=256 + len(SPECIAL), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=POSITIONS, pad_token_id=256, eos_token_id=257, bos_token_id=None,
        **more,
    )  # fmt: skip


def language_model() -> Any:
    """With random weights, the same in every run."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(7)
    return LlamaForCausalLM(config())


def scoring_model() -> Any:
    """The same with one number as its output, as reward trainers want it."""
    import torch
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(7)
    return LlamaForSequenceClassification(config(num_labels=1))


def weights(model: Any) -> dict[str, Any]:
    """A copy of all parameters."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
