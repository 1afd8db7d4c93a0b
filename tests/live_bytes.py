"""Живые байты: пик памяти шага по хранилищам, которые создают операции. Вспомогательный файл тестов.

Хранилище живёт, пока на него смотрит хоть один тензор Python или граф autograd; слабая ссылка замечает его конец.
Рабочей памяти внутри ядер здесь нет — только тензоры, зато до байта и без шума распределителя.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable


class LiveBytes(TorchDispatchMode):
    """Считает байты живых хранилищ; `peak` — наибольшее с последнего `reset`, `operation` — где оно было."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.references: dict[int, Any] = {}
        self.current = self.peak = 0
        self.operation = ""
        for tensor in tensors:
            self._add(tensor)

    def reset(self) -> None:
        """Забыть прежний пик."""
        self.peak = self.current

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.current += storage.nbytes()
            self.references[key] = weakref.ref(storage, lambda _, key=key: self._drop(key))

    def _drop(self, key: int) -> None:
        self.current -= self.sizes.pop(key)
        del self.references[key]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf)
        if self.current > self.peak:
            self.peak, self.operation = self.current, str(func)
        return result
