"""Small models of real architectures, with random weights, and inputs for them: by name, a function of the rate."""

from __future__ import annotations

import torch
import transformers
from conftest import import_timm

timm = import_timm()
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96, "vocab_size": 99}
IMAGES = {"num_classes": 5, "pretrained": False}
TRUNK = {"depth": 2, "embed_dim": 64, "num_heads": 2}


def images(name, size=64, rates=("drop_rate",), **options):
    """A model of timm, with what its constructor calls its rates."""

    def make(p):
        return timm.create_model(name, **dict.fromkeys(rates, p), **IMAGES, **options), torch.randn(8, 3, size, size)

    return make


def transformer(kind, config, inputs, **options):
    """A model of transformers; the names of its rates come from the configuration."""

    def make(p):
        plain = config(**options)
        rates = [name for name in vars(plain) if name.endswith(("dropout", "_pdrop", "dropout_prob", "dropout_rate"))]
        model = kind(config(**options, **dict.fromkeys(rates, p)))
        return model, inputs()

    return make


def tokens(**more):
    return {"input_ids": torch.randint(3, 90, (8, 20)), "attention_mask": torch.ones(8, 20, dtype=torch.long), **more}


def pairs():
    return tokens(decoder_input_ids=torch.randint(3, 90, (8, 12)))


T = transformers
BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "vocab_size": 99}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
FUNCTIONAL = ("timm ResNet", "timm EfficientNet", "Llama", "Llama, eager attention", "BART")  # without a layer to swap
MODELS = {
    "timm ViT": images(
        "vit_tiny_patch16_224",
        rates=("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
        img_size=64,
        **TRUNK,
    ),
    "timm ResNet": images("resnet18", channels=(16, 16, 32, 64)),
    "timm EfficientNet": images("efficientnet_b0", rates=("drop_rate", "drop_path_rate")),
    "timm ConvNeXt": images(
        "convnext_atto", rates=("drop_rate", "drop_path_rate"), depths=(1,) * 4, dims=(16, 16, 32, 64)
    ),
    "timm Swin": images(
        "swin_tiny_patch4_window7_224",
        rates=("drop_rate", "proj_drop_rate", "attn_drop_rate"),
        size=56,
        img_size=56,
        depths=(1, 1),
        num_heads=(2, 2),
        embed_dim=32,
    ),
    "timm MLP-Mixer": images("mixer_s32_224", 160, ("drop_rate", "proj_drop_rate"), img_size=160),  # 25 tokens: of
    # fewer units the number of draws is so small that rounding it shows
    "timm DenseNet": images("densenet121", growth_rate=16, block_config=(2, 2)),
    "BERT": transformer(T.BertForSequenceClassification, T.BertConfig, tokens, **SMALL),
    "GPT-2": transformer(
        T.GPT2LMHeadModel, T.GPT2Config, tokens, n_embd=64, n_layer=2, n_head=2, vocab_size=99, n_positions=40
    ),
    "Llama": transformer(T.LlamaForCausalLM, T.LlamaConfig, tokens, **SMALL, num_key_value_heads=2),
    "BERT, eager attention": transformer(T.BertModel, T.BertConfig, tokens, **SMALL, attn_implementation="eager"),
    "Llama, eager attention": transformer(
        T.LlamaForCausalLM, T.LlamaConfig, tokens, **SMALL, num_key_value_heads=2, attn_implementation="eager"
    ),
    "DistilBERT": transformer(
        T.DistilBertModel, T.DistilBertConfig, tokens, dim=64, n_layers=2, n_heads=2, hidden_dim=96, vocab_size=99
    ),
    "T5": transformer(
        T.T5Model, T.T5Config, pairs, d_model=64, d_kv=32, d_ff=96, num_layers=2, num_heads=2, vocab_size=99
    ),
    "BART": transformer(T.BartModel, T.BartConfig, pairs, **BART),
    "ViT": transformer(
        T.ViTModel,
        T.ViTConfig,
        lambda: {"pixel_values": torch.randn(8, 3, 64, 64)},
        image_size=64,
        patch_size=16,
        **SMALL,
    ),
    "Wav2Vec2": transformer(
        T.Wav2Vec2Model,
        T.Wav2Vec2Config,
        lambda: {"input_values": torch.randn(8, 2000)},
        **SMALL,
        conv_dim=(64, 64),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    ),
}
