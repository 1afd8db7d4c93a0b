"""Сводка по модели: один вопрос, два вида ответа — текст для человека и документ для JSON.

Обе формы берут числа из одних и тех же счетов, поэтому не могут разойтись.
"""

from __future__ import annotations

from nanolm import budget, units
from nanolm.spec import NOTATION, Spec, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanolm.budget import Account, DecodeStep
    from nanolm.fit import Fit
    from nanolm.hardware import Gpu
    from nanolm.quantization import Quantization
    from nanolm.zoo import Described


class Question:
    """О чём спросили: модель, пакет, контекст, рецепт, карта. Проверяет всё при создании.

    Ошибки: `ValueError` с именем ключа, значением и правилом.
    """

    def __init__(
        self,
        spec: Spec,
        B: int = 1,
        S: int | None = None,
        recipe: str = "mixed",
        optimizer: str = "adamw",
        attention: str = "fused",
        checkpointing: str = "none",
        dtype: str = "bf16",
        convention: str = "full",
        gpu: str | Gpu | None = None,
        gpus: int = 1,
        tokens: int | None = None,
        mfu: float = 0.45,
        price: float | None = None,
        fit: str | None = None,
        weights: str | Quantization | None = None,
        kv: str = "theory",
        block: int = 1,
        implementation: str = "nanolm",
        lora_rank: int = 0,
        lora_targets: Iterable[str] = budget.LORA_TARGETS,
        source: Described | None = None,
    ) -> None:
        self.source = source
        self.spec, self.B, self.S = spec, whole("B", B), spec.S if S is None else whole("S", S)
        if 0 < spec.learned_positions < self.S:
            limit = f"больше, чем learned_positions = {spec.learned_positions}"
            raise ValueError(
                f"S = {self.S}: {limit}: обучаемых позиций дальше нет, и модель такого контекста не примет"
            )
        self.recipe, self.dtype, self.convention = recipe, dtype, convention
        self.optimizer, self.attention, self.checkpointing = optimizer, attention, checkpointing
        self.gpus, self.tokens, self.mfu, self.price = whole("gpus", gpus), tokens, budget._mfu(mfu), price
        self.card = None if gpu is None else budget._card(gpu)
        self.weights, self.kv, self.block = budget._compression(weights, spec), kv, block
        self.implementation, self.lora_rank, self.lora_targets = implementation, lora_rank, tuple(lora_targets)
        if not lora_rank and self.lora_targets != tuple(budget.LORA_TARGETS):
            raise ValueError("lora_targets: матрицы с адаптерами нужны вместе с рангом, задайте lora_rank")
        if tokens is not None and self.card is None:
            raise ValueError("tokens: чтобы посчитать время обучения, назовите карту ключом gpu")
        if fit is not None and self.card is None:
            raise ValueError("fit: чтобы ответить, что поместится, назовите карту ключом gpu")
        if self.tokens is None and self.mfu != 0.45:
            raise ValueError("mfu: доля пика нужна вместе с числом токенов, ключ tokens")
        if self.gpus > 1 and self.card is None:
            raise ValueError("gpus: чтобы разделить модель между картами, назовите карту ключом gpu")
        if price is not None and tokens is None:
            raise ValueError("price: цена нужна вместе с числом токенов, ключ tokens")

        self.parameters = budget.parameter_breakdown(spec)
        self.flops = budget.flops_per_token(spec, self.S, attention=convention)
        self.forward = budget.flops_per_token(spec, self.S, training=False, attention=convention)
        self.attention_crossover = budget.attention_crossover(spec, convention)
        self.kv_token = budget.kv_cache_bytes(spec, 1, 1, dtype, kv).total
        self.kv_cache = budget.kv_cache_bytes(spec, self.B, self.S, dtype, kv, block)
        self.crossover_batch = budget.crossover_batch(spec, self.S, dtype, self.weights, kv, block)
        step = (recipe, optimizer, attention, checkpointing)
        self.training = budget.training_memory(spec, self.B, self.S, *step, **self._adapters())  # type: ignore[arg-type]
        stored = {"kv": kv, "weights": self.weights, "block": block, "implementation": implementation}
        stored["attention"] = attention
        self.inference = budget.inference_memory(spec, self.B, self.S, dtype, **stored)  # type: ignore[arg-type]
        self._answer_about_card()
        self.fit = None if fit is None else self._what_fits(fit)

    def _adapters(self) -> dict[str, object]:
        """Реализация и адаптеры обучения; без адаптеров квантование весов — только про вывод."""
        base = self.weights if self.lora_rank else None
        return {
            "implementation": self.implementation, "lora_rank": self.lora_rank, "lora_targets": self.lora_targets,
            "weights": base,
        }  # fmt: skip

    def _what_fits(self, goal: str) -> Fit:
        """Обратная задача. Импорт здесь: перебор изменений нужен не каждому вопросу."""
        from nanolm.fit import fit

        assert self.card is not None
        return fit(
            self.spec, self.card, goal, B=self.B, S=self.S, gpus=self.gpus, recipe=self.recipe,
            optimizer=self.optimizer, attention=self.attention, checkpointing=self.checkpointing, dtype=self.dtype,
            weights=self.weights, kv=self.kv, block=self.block, implementation=self.implementation,
            lora_rank=self.lora_rank, lora_targets=self.lora_targets,
        )  # fmt: skip

    def _answer_about_card(self) -> None:
        self.time = self.decode = self.latency = None
        if self.card is None:
            return
        # О некоторых картах известна только память: поместится ли модель, сказать можно, а время шага — нет.
        if self.card.flops_per_s:
            from nanolm.latency import decode_time, prefill_time

            where = (self.spec, self.B, self.S, self.card, self.dtype)
            self.decode = budget.decode_step_time(*where, weights=self.weights)
            one, other = (f(*where, weights=self.weights) for f in (prefill_time, decode_time))
            self.latency = (one, other)
        if self.tokens is not None:
            self.time = budget.training_time(
                self.spec, self.tokens, self.card, self.gpus, self.mfu, self.S, self.convention, self.price
            )

    def fits(self) -> list[tuple[str, str, int]]:
        """Помещаются ли вывод и обучение на одну карту: ключ, название, байты."""
        return [
            ("inference", "вывод", self.inference.peak),
            ("training", "обучение", self.training.total),
        ]


def document(question: Question) -> dict[str, object]:
    """Ответ для `--json`: основные единицы, целые числа точно."""
    q = question
    answer: dict[str, object] = {
        "spec": {**q.spec.to_dict(), "S": q.S, "B": q.B},
        "parameters": {
            "total": q.parameters.total,
            "active": q.parameters.active,
            "non_embedding": q.parameters.non_embedding,
            "rows": dict(q.parameters),
        },
        "flops_per_token": {
            "forward": q.forward.total,
            "training": q.flops.total,
            "rows": dict(q.flops),
            "attention_crossover": q.attention_crossover,
            "convention": q.convention,
        },
        "kv_cache": {
            "bytes_per_token": q.kv_token,
            "bytes": q.kv_cache.total,
            "crossover_batch": q.crossover_batch,
            **({} if q.kv == "theory" and q.block == 1 else {"convention": q.kv, "block": q.block}),
        },
        "memory": {
            **({} if q.implementation == "nanolm" else {"implementation": q.implementation}),
            "training": {
                "total": q.training.total,
                "rows": dict(q.training),
                **({"lora": {"rank": q.lora_rank, "targets": list(q.lora_targets)}} if q.lora_rank else {}),
            },
            "inference": {
                "total": q.inference.total,
                "peak": q.inference.peak,
                "rows": dict(q.inference),
                **({} if q.weights is None else {"quantization": q.weights.name}),
            },
        },
    }
    return answer | _card_document(q)


def _card_document(q: Question) -> dict[str, object]:
    """Разделы, которых просят ключи: карта, шаг декодирования, время обучения."""
    if q.card is None:
        return {}
    answer: dict[str, object] = {}
    if q.latency is not None:
        answer["prefill"] = {**q.latency[0].to_dict(), "flops": q.latency[0].flops}
    answer |= {
        "fit": {
            "gpu": q.card.key,
            "usable_bytes": q.card.usable_bytes,
            "usable_is_assumed": q.card.usable_is_assumed,
            **{key: need <= q.card.usable_bytes for key, _, need in q.fits()},
            **({} if q.fit is None else q.fit.to_dict()),
        },
    }
    if q.decode is not None and q.latency is not None:
        answer["decode"] = {**_decode_document(q.decode), "interval": q.latency[1].to_dict()}
    if q.time is not None:
        answer["training_time"] = {
            "seconds": q.time.seconds,
            "gpu_hours": q.time.gpu_hours,
            "flops": q.time.flops,
            "cost": q.time.cost,
            "gpus": q.time.gpus,
            "mfu": q.time.mfu,
            "dtype": q.time.dtype,
        }
    return answer


def _decode_document(step: DecodeStep) -> dict[str, object]:
    return {
        "seconds": step.seconds,
        "memory_seconds": step.memory_seconds,
        "compute_seconds": step.compute_seconds,
        "weight_bytes": step.weight_bytes,
        "cache_bytes": step.cache_bytes,
        "flops": step.flops,
        "bound": {"память": "memory", "вычисления": "compute"}[step.bound],
        "dtype": step.dtype,
        "compute_dtype": step.compute_dtype,
    }


def text(question: Question) -> str:
    """Ответ для терминала: разделы с таблицами."""
    q = question
    sections = [
        "\n".join([_geometry(q), *_source_remarks(q)]),
        str(q.parameters),
        _parameter_remarks(q),
        str(q.flops),
        _flops_remarks(q),
        str(q.inference),
        "\n".join([*_storage_remarks(q), _cache_remarks(q)]),
        str(q.training),
        *_card_sections(q),
        *([] if q.fit is None else [str(q.fit)]),
    ]
    return "\n\n".join(sections)


def _geometry(q: Question) -> str:
    """Буквы — все, слова — только те, что отличаются от умолчаний `Spec`."""
    shown = {**q.spec.to_dict(), "S": q.S, "B": q.B}
    defaults = Spec.__init__.__kwdefaults__ or {}
    letters = [f"{name} = {shown[name]}" for name in NOTATION if name in shown]
    words = [
        f"{name} = {'по слоям' if isinstance(value, tuple) else value}"
        for name, value in shown.items()
        if name not in NOTATION and value != defaults.get(name)
    ]
    return "Модель: " + ", ".join(letters + words)


def _source_remarks(q: Question) -> list[str]:
    """Чем вопрос отличается от того, что записано о модели: нет картинок, контекст длиннее."""
    if q.source is None:
        return []
    lines = ["посчитана только текстовая часть модели"] if q.source.text_only else []
    longest = q.source.longest
    if longest is not None and longest < q.S:
        lines.append(
            f"контекст S = {units.number(q.S)} длиннее того, на который модель рассчитана: {units.number(longest)}"
        )
    return lines


def _parameter_remarks(q: Question) -> str:
    active, body = units.number(q.parameters.active), units.number(q.parameters.active_non_embedding)
    return f"работает на токен: {active};  из них без эмбеддинга и головы (N из 6N): {body}"


def _flops_remarks(q: Question) -> str:
    names = {"full": "полный квадрат", "windowed": "квадрат в пределах окна", "causal": "только видимые пары"}
    crossover = q.attention_crossover
    reach = "не догоняют матрицы" if crossover is None else f"догоняют матрицы слоёв при S = {units.number(crossover)}"
    line = f"прямой проход: {units.number(q.forward.total)};  внимание: {names[q.convention]};  оценки {reach}"
    return "\n".join([line, *_work_remarks(q)])


def _work_remarks(q: Question) -> list[str]:
    """Оговорки о FLOPs: окно, которого соглашение не видит, и адаптеры."""
    widths = [width for width in q.spec.windows if width is not None and width < q.S]
    if not widths or q.convention != "full":
        return _adapter_remarks(q)
    return ["окно учтено в кеше, но не во FLOPs: full считает весь квадрат, с окном — windowed", *_adapter_remarks(q)]


def _adapter_remarks(q: Question) -> list[str]:
    """Оговорка о LoRA: счёт FLOPs и времени адаптеров не знает."""
    if not q.lora_rank:
        return []
    return ["FLOPs и время — как при обучении всех весов; у LoRA градиентов замороженных матриц нет, и работы меньше"]


def _cache_remarks(q: Question) -> str:
    return (
        f"кеш KV: {units.binary_bytes(q.kv_token)} на токен;  равен весам при B = {units.decimal(q.crossover_batch)};  "
        f"пик с рабочими буферами: {units.both_bytes(q.inference.peak)}"
    )


def _storage_remarks(q: Question) -> list[str]:
    """Как квантованы веса и как отведён кеш, если не так, как по умолчанию."""
    lines = []
    if q.weights is not None:
        stored, count = q.inference["weights"], q.parameters.total
        plain = count * budget.DTYPES[q.dtype]
        bits, whole_size = units.decimal(8 * stored / count), units.binary_bytes(plain)
        lines.append(
            f"веса квантованы: {q.weights.name}, {bits} бита на параметр с масштабами и нетронутыми весами; "
            f"в {q.dtype} было бы {whole_size}"
        )
        if not q.lora_rank:
            lines.append(
                f"обучение — без квантования, веса по рецепту {q.recipe}; адаптеры на квантованных весах учит LoRA"
            )
    if q.kv != "theory" or q.block > 1:
        blocks = f", блоками по {units.counted(q.block, 'токену', 'токена', 'токенов')}" if q.block > 1 else ""
        lines.append(f"кеш KV по соглашению {q.kv}{blocks}")
    return lines


def _rate_remarks(q: Question) -> list[str]:
    """Чего нет у карты, для которой названо время ответа: места под модель или скорости в этой точности."""
    if q.card is None or q.decode is None:
        return []
    lines = []
    if q.inference.peak > q.card.usable_bytes:
        lines.append("вывод на карту не помещается: время ответа — как если бы памяти хватало")
    if q.decode.compute_dtype != q.dtype:
        lines.append(f"в {q.dtype} карта не умножает: время ответа — со скоростью {q.decode.compute_dtype}")
    return lines


def _card_sections(q: Question) -> list[str]:
    if q.card is None:
        return []
    card = q.card
    assumed = " — допущение: 92 % паспортной" if card.usable_is_assumed else ""
    lines = [f"Карта: {card.title}, доступно {units.both_bytes(card.usable_bytes)}{assumed}"]
    for _, title, need in q.fits():
        verdict = "помещается" if need <= card.usable_bytes else "не помещается"
        lines.append(f"{title}: нужно {units.both_bytes(need)} — на одну карту {verdict}")
    if q.gpus > 1:
        lines.append(_sharded(q, card))
    if q.decode is not None:
        lines.append(
            f"шаг декодирования: не быстрее {units.duration(q.decode.seconds)}, ограничивает {q.decode.bound}; "
            f"{units.counted(q.decode.tokens_per_s, 'токен', 'токена', 'токенов')}/с на пакет"
        )
    if q.latency is not None:
        titles = ("заполнение контекста", "шаг декодирования, оценка")
        lines += [f"{title}: {found}" for title, found in zip(titles, q.latency, strict=True)]
        lines += _rate_remarks(q)
    if q.time is not None:
        lines.append(f"обучение на {units.number(q.time.gpus)} × {card.title}: {q.time}")
        lines += _adapter_remarks(q)
    return ["\n".join(lines)]


def _sharded(q: Question, card: Gpu) -> str:
    """Обучение, разделённое между картами: на каждой — свой пакет и своя доля состояний."""
    from nanolm.sharding import shard_training

    need = shard_training(q.training, q.gpus, "zero3").total
    verdict = "помещается" if need <= card.usable_bytes else "не помещается"
    cards = f"{units.number(q.gpus)} {units.plural(q.gpus, 'карте', 'картах', 'картах')}"
    return f"обучение на {cards} с ZeRO-3, B на каждой: по {units.both_bytes(need)} — {verdict}"


def explanation(question: Question) -> str:
    """Все счета построчно, по компонентам: название, формула буквами, формула числами, результат."""
    q = question
    accounts = (q.parameters, q.flops, q.kv_cache, q.inference, q.training)
    answers = [] if q.fit is None else [str(q.fit)]
    return "\n\n".join([*map(_explained, accounts), *_card_sections(q), *answers])


def _explained(account: Account) -> str:
    """Счёт с подзаголовком на каждый непустой компонент."""
    lines = [f"{account.title}: {units.number(account.total)} {account.unit}"]
    for name, total in account.items():
        if total:
            lines.append(f"  {budget.TITLES[name]}: {units.number(total)}")
            lines += [f"    {line}" for line in account.explain(name).split("\n")]
    return "\n".join(lines)
