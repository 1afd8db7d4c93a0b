"""Эталонный шаг обучения: по нему измеряется каждый рецепт точности из `nanolm.budget`.

Рецепт решает, в чём лежат веса и градиенты, в чём идёт счёт и есть ли fp32-копия весов:

- «fp32» — всё в fp32;
- «bf16» — всё в bf16, и состояние оптимизатора тоже;
- «autocast» — веса в fp32, произведения в bf16 внутри `torch.autocast`;
- «mixed» — веса и градиенты в bf16, а оптимизатор ведёт fp32-копию весов (`MasterOptimizer`).

Оптимизаторы слитые (`fused=True`): они обновляют веса на месте и временных копий не заводят. Градиенты
обнуляются, а не удаляются: так живут они при накоплении, и так их считает `training_memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from nanolm.budget import RECIPES
from nanolm.model import NanoLM
from nanolm.spec import Spec

#: Оптимизатор счёта → слитый оптимизатор torch. Восьмибитного в torch нет.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": partial(torch.optim.AdamW, lr=3e-4, fused=True),
    "sgd": partial(torch.optim.SGD, lr=1e-2, fused=True),
    "momentum": partial(torch.optim.SGD, lr=1e-2, momentum=0.9, fused=True),
}


class MasterOptimizer:
    """Оптимизатор с fp32-копией весов: копится в ней, а модель получает округление.

    Шаг меньше половины единицы последнего разряда bf16 в самих bf16-весах пропал бы бесследно. Градиент
    переводится в fp32 по одному тензору, поэтому лишней памяти — на один, самый большой.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], make: Callable[..., torch.optim.Optimizer]) -> None:
        self.parameters = list(parameters)
        self.masters = [parameter.detach().float() for parameter in self.parameters]
        self.optimizers = [make([master]) for master in self.masters]

    @torch.no_grad()
    def step(self) -> None:
        """Обновить копию каждого тензора и округлить её в вес."""
        for parameter, master, optimizer in zip(self.parameters, self.masters, self.optimizers, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            optimizer.step()
            master.grad = None
            parameter.copy_(master)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Обнулить или удалить градиенты модели."""
        for parameter in self.parameters:
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()


class Training:
    """Модель, оптимизатор и шаг обучения по рецепту. `step` делает шаг, остальное измеряет его части."""

    def __init__(
        self,
        spec: Spec,
        recipe: str = "fp32",
        optimizer: str = "adamw",
        attention: str = "fused",
        checkpointing: str = "none",
        device: torch.device | str = "cpu",
    ) -> None:
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer = {optimizer!r}: измеряются {', '.join(OPTIMIZERS)}")
        self.device, self.recipe = torch.device(device), recipe
        dtype = torch.bfloat16 if RECIPES[recipe].weights == 2 else torch.float32
        with self.device:
            self.model = NanoLM(spec, attention=attention, checkpointing=checkpointing).to(dtype)
        make = OPTIMIZERS[optimizer]
        self.optimizer: MasterOptimizer | torch.optim.Optimizer = (
            MasterOptimizer(self.model.parameters(), make) if RECIPES[recipe].master else make(self.model.parameters())
        )

    def autocast(self) -> AbstractContextManager[object]:
        """Среда прямого прохода: bf16 для произведений, если рецепт — «autocast»."""
        return torch.autocast(self.device.type, torch.bfloat16) if RECIPES[self.recipe].copies else nullcontext()

    def loss(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Прямой проход."""
        with self.autocast():
            return self.model.loss(tokens_BT, targets_BT)

    def step(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Прямой проход, обратный, шаг оптимизатора; возвращает потери."""
        loss = self.loss(tokens_BT, targets_BT)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    def batch(self, B: int, S: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Случайные токены и ответы: памяти и времени всё равно, какие они."""
        generator = torch.Generator().manual_seed(seed)
        shape = (2, B, S)
        tokens, targets = torch.randint(self.model.spec.V, shape, generator=generator).unbind()
        # Копии: иначе оба тензора — виды на одно хранилище, и байты ответов считались бы дважды.
        return tokens.clone().to(self.device), targets.clone().to(self.device)

    def state_bytes(self) -> dict[str, int]:
        """Байты постоянной памяти шага по компонентам счёта; счётчики шагов оптимизатора не в счёт."""
        parameters = list(self.model.parameters())
        optimizers = self.optimizer.optimizers if isinstance(self.optimizer, MasterOptimizer) else [self.optimizer]
        masters = self.optimizer.masters if isinstance(self.optimizer, MasterOptimizer) else []
        moments = [
            value
            for optimizer in optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor) and value.dim()
        ]
        return {
            "weights": _bytes(parameters),
            "master_weights": _bytes(masters),
            "gradients": _bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
            "optimizer": _bytes(moments),
        }


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
