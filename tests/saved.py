"""Что autograd держит до обратного прохода: уникальные хранилища, кроме параметров и буферов модели.

Вспомогательный файл тестов; печать списка: `python tests/saved.py`. Каждый тензор назван строкой
кода модели, которая его сохранила, и номером слоя.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from nanolm.model import Block, NanoLM
from nanolm.spec import Spec


@dataclass(frozen=True)
class Saved:
    """Одно хранилище: где сохранено, слой (None — вне слоёв), форма первого сохранения, тип, байты."""

    place: str
    layer: int | None
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


def saved_tensors(model: NanoLM, tokens: torch.Tensor, targets: torch.Tensor, autocast: bool = False) -> list[Saved]:
    """Хранилища, сохранённые прямым проходом `model.loss`, в порядке появления."""
    constant = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    # Сами тензоры держим, чтобы освобождённый адрес не достался следующему.
    kept: dict[int, tuple[Saved, torch.Tensor]] = {}
    layer: list[int | None] = [None]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in constant | set(kept):
            row = Saved(_place(), layer[0], tuple(tensor.shape), str(tensor.dtype)[6:], storage.nbytes())
            kept[storage.data_ptr()] = (row, tensor)
        return tensor

    def enter(block: Block, *_: object) -> None:
        layer[0] = block.attention.layer

    def leave(*_: object) -> None:
        layer[0] = None

    handles = []
    for block in model.layers:
        handles += [block.register_forward_pre_hook(enter), block.register_forward_hook(leave)]
    mode = torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    with mode, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model.loss(tokens, targets)
    for handle in handles:
        handle.remove()
    del loss
    return [row for row, _ in kept.values()]


def _place() -> str:
    """Ближайшая строка nanolm на стеке: функция и номер."""
    frame = sys._getframe(1)
    while frame is not None and "nanolm" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_code.co_qualname}:{frame.f_lineno}"


#: Геометрия, у которой все размеры разные, — чтобы форма выдавала ось.
SMALL = {"V": 97, "D": 40, "L": 3, "N": 6, "K": 2, "H": 12, "F": 56, "S": 32}
CASES: dict[str, tuple[dict[str, object], dict[str, str], str]] = {
    "fp32 fused": ({}, {}, "fp32"),
    "fp32 naive": ({}, {"attention": "naive"}, "fp32"),
    "bf16 fused": ({}, {}, "bf16"),
    "bf16 naive": ({}, {"attention": "naive"}, "bf16"),
    "autocast fused": ({}, {}, "autocast"),
    "autocast naive": ({}, {"attention": "naive"}, "autocast"),
    "fp32 selective fused": ({}, {"checkpointing": "selective"}, "fp32"),
    "fp32 selective naive": ({}, {"checkpointing": "selective", "attention": "naive"}, "fp32"),
    "fp32 full": ({}, {"checkpointing": "full"}, "fp32"),
    "bf16 full": ({}, {"checkpointing": "full"}, "bf16"),
    "autocast full": ({}, {"checkpointing": "full"}, "autocast"),
    "fp32 qk_norm": ({"qk_norm": True}, {}, "fp32"),
    "bf16 qk_norm": ({"qk_norm": True}, {}, "bf16"),
    "fp32 MoE": ({"experts": 5, "experts_per_token": 3}, {}, "fp32"),
    "bf16 MoE": ({"experts": 5, "experts_per_token": 3}, {}, "bf16"),
    "autocast MoE": ({"experts": 5, "experts_per_token": 3}, {}, "autocast"),
    "fp32 plain, biases, LayerNorm, learned positions": (
        {
            "gated_ffn": False, "qkv_bias": True, "out_bias": True, "ffn_bias": True, "norm_bias": True,
            "learned_positions": 32,
        }, {}, "fp32",
    ),
    "bf16 LayerNorm": ({"norm_bias": True}, {}, "bf16"),
    "autocast LayerNorm": ({"norm_bias": True}, {}, "autocast"),
    "fp32 window 5 of 16": ({"window": 5}, {}, "fp32"),
    "bf16 windows None, 5, 5": ({"window": (None, 5, 5)}, {}, "bf16"),
    "fp32 tied": ({"tie_embeddings": True}, {}, "fp32"),
}  # fmt: skip


def main() -> None:
    for name, (fields, options, recipe) in CASES.items():
        torch.manual_seed(0)
        model = NanoLM(Spec(**{**SMALL, **fields}), **options)
        if recipe == "bf16":
            model = model.bfloat16()
        batch = torch.randint(0, 97, (2, 17))
        rows = saved_tensors(model, batch[:, :-1].clone(), batch[:, 1:].clone(), recipe == "autocast")
        print(f"\n## {name}: total {sum(row.nbytes for row in rows)} bytes")
        for row in rows:
            if row.layer in (None, 1):
                where = "outside" if row.layer is None else "layer 1"
                print(f"{where} | {row.place} | {list(row.shape)} | {row.dtype} | {row.nbytes}")


if __name__ == "__main__":
    main()
