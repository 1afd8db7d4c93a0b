"""Скорость NanoLM рядом с transformers и с пределом этой машины.

Один запуск, одна геометрия, одни веса; соперники идут попеременно, и сравниваются замеры одного круга:
машина, занятая чем-то ещё, замедляет всех троих одинаково. Третий соперник — предел: только
произведения самой модели, тех же форм и теми же потоками, без норм, сложений, функции потерь и
оптимизатора. Быстрее него эта модель здесь не пойдёт.

    python bench/speed.py                       # всё, несколько минут
    python bench/speed.py --models 20M --rows decode-1 --json

Это измерение, а не тест: время зависит от машины, и в pytest ему не место.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from nanolm import units
from nanolm.machine import name_of
from nanolm.measure import PROBE_VERSION, Samples, alternate, ratio
from nanolm.model import NanoLM
from nanolm.spec import Spec

CPU = torch.device("cpu")
#: Геометрии Llama с группами запросов: около 20 и около 120 миллионов параметров.
MODELS = {
    "20M": Spec(V=16384, D=384, L=6, N=6, K=2, H=64, F=1024, S=1024),
    "120M": Spec(V=32000, D=768, L=12, N=12, K=4, H=64, F=2048, S=1024),
}
#: Токенов в шаге обучения (B, S), в запросе, и порождаемых после запроса.
TRAINING, PREFILL, PROMPT, NEW = (2, 256), (1, 512), 128, 16

Contest = dict[str, Callable[[], object]]
NAMES = ("nanolm", "transformers", "limit")


class Bench:
    """Модель, её ровесник с теми же весами и матрицы, из которых складывается предел."""

    def __init__(self, spec: Spec) -> None:
        torch.manual_seed(0)
        self.spec, self.model = spec, NanoLM(spec)
        self.peer = _peer(self.model)

    def matrices(self) -> list[Tensor]:
        """Все матрицы, на которые умножает модель; последняя — голова."""
        return [module.weight.detach() for module in self.model.modules() if isinstance(module, nn.Linear)]

    def tokens(self, B: int, S: int) -> Tensor:
        return torch.randint(self.spec.V, (B, S))

    def contests(self) -> Iterator[tuple[str, Contest]]:
        """Строки таблицы по очереди; раскладка для порождения меняет веса, поэтому оно последнее."""
        yield "training", self._training()
        yield "prefill", self._prefill()
        self.model.lay_out_for_decoding()
        for B in (1, 8):
            yield f"decode-{B}", self._decode(B)

    # --- Обучение: прямой проход, обратный, AdamW ---

    def _training(self) -> Contest:
        tokens, targets = self.tokens(*TRAINING), self.tokens(*TRAINING)

        def peer_loss() -> Tensor:
            return functional.cross_entropy(self.peer(tokens).logits.flatten(0, 1), targets.flatten())

        return {
            "nanolm": _step(self.model, lambda: self.model.loss(tokens, targets)),
            "transformers": _step(self.peer, peer_loss),
            "limit": self._training_products(),
        }

    def _training_products(self) -> Callable[[], None]:
        """У каждой матрицы три произведения: выход и градиенты входа и веса; внимание — вперёд и назад."""
        B, S = TRAINING
        inputs, outputs = self._operands(B * S)
        query, key, value = (tensor.requires_grad_() for tensor in self._heads(B, S, S))
        back = torch.randn_like(query)

        def run() -> None:
            with torch.no_grad():
                for matrix in self.matrices():
                    x, y = inputs[matrix.shape[1]], outputs[matrix.shape[0]]
                    functional.linear(x, matrix)
                    torch.mm(y, matrix)
                    torch.mm(y.t(), x)
            for _ in range(self.spec.L):
                torch.autograd.grad(_attend(query, key, value, causal=True), (query, key, value), back)

        return run

    # --- Чтение запроса ---

    def _prefill(self) -> Contest:
        B, S = PREFILL
        tokens, cache = self.tokens(B, S), self.model.new_cache(B, S)

        def read() -> None:
            cache.position = 0
            self.model.prefill(tokens, cache)

        @torch.inference_mode()
        def peer() -> None:
            self.peer(tokens, use_cache=True, logits_to_keep=1)

        return {"nanolm": read, "transformers": peer, "limit": self._products(B, S)}

    @torch.inference_mode()
    def _products(self, B: int, S: int) -> Callable[[], None]:
        """Прямой проход: голова нужна только последнему токену."""
        inputs, _ = self._operands(B * S)
        last, heads = torch.randn(B, self.spec.D), self._heads(B, S, S)

        @torch.inference_mode()
        def run() -> None:
            *matrices, head = self.matrices()
            for matrix in matrices:
                functional.linear(inputs[matrix.shape[1]], matrix)
            functional.linear(last, head)
            for _ in range(self.spec.L):
                _attend(*heads, causal=True)

        return run

    # --- Порождение ---

    def _decode(self, B: int) -> Contest:
        prompt = self.tokens(B, PROMPT)
        cache, token = self.model.new_cache(B, PROMPT + NEW), prompt[:, 0].clone()
        self.model.prefill(prompt, cache)
        with torch.inference_mode():
            past = self.peer(prompt, use_cache=True).past_key_values

        def decode() -> None:
            cache.position = PROMPT
            for _ in range(NEW):
                self.model.decode(token, cache)

        @torch.inference_mode()
        def peer() -> None:
            for _ in range(NEW):
                self.peer(token[:, None], past_key_values=past, use_cache=True, logits_to_keep=1)
            past.crop(-NEW)

        return {"nanolm": decode, "transformers": peer, "limit": self._decode_products(B)}

    @torch.inference_mode()
    def _decode_products(self, B: int) -> Callable[[], None]:
        inputs, _ = self._operands(B)
        query, keys, values = self._heads(B, 1, PROMPT + NEW)

        @torch.inference_mode()
        def run() -> None:
            for step in range(PROMPT, PROMPT + NEW):
                for matrix in self.matrices():
                    functional.linear(inputs[matrix.shape[1]], matrix)
                for _ in range(self.spec.L):
                    _attend(query, keys[:, :, :step], values[:, :, :step], causal=False)

        return run

    def _operands(self, rows: int) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Случайные входы и градиенты выходов матриц: по одному на ширину."""
        shapes = [matrix.shape for matrix in self.matrices()]
        return {k: torch.randn(rows, k) for _, k in shapes}, {n: torch.randn(rows, n) for n, _ in shapes}

    def _heads(self, B: int, T: int, S: int) -> tuple[Tensor, Tensor, Tensor]:
        N, K, H = self.spec.N, self.spec.K, self.spec.H
        return torch.randn(B, N, T, H), torch.randn(B, K, S, H), torch.randn(B, K, S, H)


def _attend(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)


def _step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """Шаг обучения: оба соперника — с одним и тем же слитым AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def run() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def _peer(model: NanoLM) -> Any:
    """Llama из transformers с весами этой модели."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)


def measure(models: Iterable[str], rows: Iterable[str], repeats: int) -> Iterator[dict[str, Any]]:
    """Строки таблицы: времена троих и отношения внутри кругов."""
    for name in models:
        bench = Bench(MODELS[name])
        for row, contest in bench.contests():
            if row not in rows:
                continue
            samples = alternate(contest, CPU, warmup=1, repeats=repeats, progress=_progress(f"{name} {row}"))
            steps = NEW if row.startswith("decode") else 1
            samples = {who: Samples(tuple(value / steps for value in found.seconds)) for who, found in samples.items()}
            yield {
                "model": name, "row": row,
                "peer_ratio": ratio(samples, "transformers", "nanolm"),
                "limit_share": ratio(samples, "limit", "nanolm"),
                **{who: samples[who].to_dict() for who in NAMES},
            }  # fmt: skip


def _progress(title: str) -> Callable[[Iterable[int]], Iterable[int]]:
    return lambda turns: tqdm(turns, desc=title, file=sys.stderr, disable=None, leave=False)


ROWS = {
    "training": "шаг обучения", "prefill": "чтение запроса", "decode-1": "порождение, B = 1",
    "decode-8": "порождение, B = 8",
}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Таблица для терминала."""
    head = ("модель", "что", "NanoLM", "transformers", "предел", "transformers / NanoLM", "доля предела", "разброс")
    body = [
        (
            row["model"], ROWS[row["row"]], *(units.duration(row[who]["median_s"]) for who in NAMES),
            units.number(row["peer_ratio"], 2), units.percent(row["limit_share"], 0),
            units.percent(row["nanolm"]["spread"], 0),
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [head, *body]]
    return "\n".join(lines)


def main() -> None:
    """Разобрать ключи, измерить, напечатать."""
    parser = argparse.ArgumentParser(description="Скорость NanoLM рядом с transformers и с пределом машины.")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="какие модели")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="какие строки")
    parser.add_argument("--repeats", type=int, default=7, help="сколько кругов (по умолчанию 7)")
    parser.add_argument("--json", action="store_true", help="последней строкой — документ JSON с сырыми замерами")
    args = parser.parse_args()
    print(f"{name_of(CPU)}; torch {torch.__version__}", file=sys.stderr if args.json else sys.stdout, flush=True)
    rows = list(measure(args.models, args.rows, args.repeats))
    document = {"probe_version": PROBE_VERSION, "device": name_of(CPU), "torch": torch.__version__, "rows": rows}
    print(json.dumps(document, ensure_ascii=False) if args.json else table(rows))


if __name__ == "__main__":
    main()
