"""Кеш ключей и значений: то, ради чего порождение не перечитывает текст на каждом шаге.

Шаг порождения считает запрос, ключ и значение одного нового токена; ключи и значения прежних уже
посчитаны и лежат здесь. В счёте это 2·B·S·L·K·H чисел: множитель 2 — ключ и значение, K, а не N —
потому что голов ключа столько; у слоя с окном вместо S позиций — min(S, W).

Оси в именах — как в `nanolm.model`; C — ёмкость слоя, ячейки в нём.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nanolm.spec import Spec


class KVCache:
    """Память под ключи и значения, выделенная заранее: по K голов на слой, после поворота.

    Ячейка позиции p — p mod C, где C — ёмкость слоя: `length` или окно, если оно короче. Порядок ячеек
    вниманию безразличен, поэтому окно движется без сдвига памяти. `position` — сколько токенов уже
    внутри; у запросов разной длины их число хранит `position_B`.
    """

    def __init__(
        self, spec: Spec, batch: int, length: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        if not 1 <= length <= spec.S:
            raise ValueError(f"length = {length}: кеш вмещает от 1 до S = {spec.S} позиций")
        if batch < 1:
            raise ValueError(f"batch = {batch}: нужно целое число не меньше 1")
        sizes = [length if window is None else min(length, window) for window in spec.windows]
        shapes = [(batch, spec.K, size, spec.H) for size in sizes]
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]
        self.batch, self.length = batch, length
        self.position = 0
        self.position_B: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Сколько байт занимают ключи и значения."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def check(self, B: int, T: int) -> None:
        """Поместятся ли ещё T токенов в B строках; `ValueError` называет оба числа."""
        if self.batch != B:
            raise ValueError(f"cache: рассчитан на batch = {self.batch}, а запросов {B}")
        if T > 1 and self.position:
            raise ValueError(f"cache: занято позиций {self.position}; дальше — по одному токену, а пришло {T}")
        if self.position + T > self.length:
            raise ValueError(f"cache: length = {self.length} позиций, а нужно {self.position + T}")

    def update(self, layer: int, k_BKTH: Tensor, v_BKTH: Tensor) -> tuple[Tensor, Tensor]:
        """Записать новые ключи и значения слоя и вернуть те, на которые смотрит внимание."""
        key_BKCH, value_BKCH = self.keys[layer], self.values[layer]
        if k_BKTH.shape[2] > 1:
            # Чтение запроса: каждый его токен видит другие токены того же запроса, кеш только пишется.
            self._fill(key_BKCH, k_BKTH)
            self._fill(value_BKCH, v_BKTH)
            return k_BKTH, v_BKTH
        size = key_BKCH.shape[2]
        if self.position_B is None:
            slot = self.position % size
            key_BKCH[:, :, slot : slot + 1] = k_BKTH
            value_BKCH[:, :, slot : slot + 1] = v_BKTH
        else:
            row_B, slot_B = torch.arange(self.batch, device=key_BKCH.device), self.position_B % size
            key_BKCH[row_B, :, slot_B] = k_BKTH[:, :, 0]
            value_BKCH[row_B, :, slot_B] = v_BKTH[:, :, 0]
        filled = min(self.position + 1, size)
        return key_BKCH[:, :, :filled], value_BKCH[:, :, :filled]

    def _fill(self, store_BKCH: Tensor, new_BKTH: Tensor) -> None:
        """Записать прочитанный запрос; если он длиннее слоя, остаётся хвост — у каждой строки свой."""
        T, size = new_BKTH.shape[2], store_BKCH.shape[2]
        if size >= T:
            store_BKCH[:, :, :T] = new_BKTH
            return
        last_B1 = self._lengths(T)[:, None] - 1
        slot_C = torch.arange(size, device=store_BKCH.device)
        # Самая поздняя позиция, которой принадлежит ячейка; ещё пустые ячейки закроет маска.
        source_BC = (last_B1 - (last_B1 - slot_C) % size).clamp_(min=0)
        index_BKCH = source_BC[:, None, :, None].expand_as(store_BKCH)
        store_BKCH.copy_(new_BKTH.gather(2, index_BKCH))

    def _lengths(self, T: int) -> Tensor:
        full = torch.full((self.batch,), T, device=self.keys[0].device)
        return full if self.position_B is None else self.position_B

    def masks(self, dtype: torch.dtype) -> list[Tensor | None]:
        """Маска каждого слоя на один шаг порождения: нужна, только если длины запросов разные."""
        sizes = [key.shape[2] for key in self.keys]
        if self.position_B is None:
            return [None] * len(sizes)
        by_size = {size: self._mask(size, self.position_B, dtype) for size in set(sizes)}
        return [by_size[size] for size in sizes]

    def _mask(self, size: int, position_B: Tensor, dtype: torch.dtype) -> Tensor:
        slot_C = torch.arange(min(self.position + 1, size), device=position_B.device)
        hidden_BC = slot_C > position_B[:, None]
        mask_BC = torch.zeros(hidden_BC.shape, dtype=dtype, device=position_B.device)
        return mask_BC.masked_fill_(hidden_BC, -math.inf)[:, None, None]

    def advance(self, tokens: int) -> None:
        """Отметить, что все слои записали ещё `tokens` позиций."""
        if self.position_B is not None and self.position:
            self.position_B = self.position_B + tokens
        self.position += tokens
