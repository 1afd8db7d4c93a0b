"""Эталонные формулы упражнений: то, что пишет учащийся, на голых числах.

Это упрощённые формулы лабораторий и недели 9, а не счёт модели: они не знают ни геометрии, ни рецепта,
ни того, какие тензоры держит обратный проход. Уроки сравнивают их с `nanolm.budget` и объясняют разницу.

Имена и порядок аргументов — как у учащегося, поэтому каждая функция здесь проходит свою же проверку.
"""

from __future__ import annotations

from nanolm.units import GIB

#: Сценарии упражнения 7.2: модель → (параметры, токены обучения). Числа — из статей о моделях.
SCENARIOS = {
    "BERT-base": (110e6, 3.3e9),
    "T5-large": (770e6, 1e12),
    "Gemma-1B": (1e9, 30e3),
    "PaLM": (540e9, 780e9),
}

SECONDS_PER_DAY = 86_400


# --- Лаборатория 7.2 ----------------------------------------------------------------------------


def compute_num_flops(param_count: float, num_tokens: float) -> float:
    """FLOPs обучения за одну эпоху.

    Прямой проход: умножение и сложение на каждый параметр, то есть 2. Обратный вдвое дороже: градиент
    нужен и по входу слоя, и по весам.
    """
    return 6 * param_count * num_tokens


def scenario_flops() -> dict[str, float]:
    """FLOPs обучения моделей из таблицы `SCENARIOS`."""
    return {name: compute_num_flops(*given) for name, given in SCENARIOS.items()}


# --- Лаборатория 7.4: гибибайты -----------------------------------------------------------------


def calculate_param_memory(param_count: float, bytes_per_param: float) -> float:
    """Память весов."""
    return param_count * bytes_per_param / GIB


def calculate_input_data_memory(batch_size: int, max_length: int, bytes_per_token_id: float) -> float:
    """Память входного пакета: один номер на токен."""
    return batch_size * max_length * bytes_per_token_id / GIB


def calculate_gradient_memory(param_count: float, bytes_per_param: float) -> float:
    """Память градиентов: по числу на параметр, той же ширины, что и вес."""
    return param_count * bytes_per_param / GIB


def calculate_optimizer_memory(param_count: float, bytes_per_param: float) -> float:
    """Память состояния Adam: два момента на параметр."""
    return 2 * param_count * bytes_per_param / GIB


def calculate_activation_memory(
    batch_size: int, max_length: int, num_layers: int, embedding_dim: int, bytes_per_param: float
) -> float:
    """Память активаций в упрощённой модели: один вектор ширины `embedding_dim` на токен на слой."""
    return batch_size * max_length * num_layers * embedding_dim * bytes_per_param / GIB


# --- Неделя 9 -----------------------------------------------------------------------------------


def count_params(V: int, D: int, L: int, N: int, K: int, H: int, F: int, tie_embeddings: bool) -> int:
    """Параметры декодера с GQA, SwiGLU и RMSNorm без смещений."""
    attention = D * N * H + 2 * D * K * H + N * H * D
    ffn = 3 * D * F
    norms = 2 * D
    head = 0 if tie_embeddings else V * D
    return V * D + L * (attention + ffn + norms) + D + head


def swiglu_width(D: int) -> int:
    """Ширина SwiGLU, при которой три матрицы весят столько же, сколько две матрицы 4D.

    Деление целочисленное: 8D/3, округлённое до ближайшего, без чисел с плавающей точкой.
    """
    return (16 * D + 3) // 6


def flops_rule(total_params: int, V: int, D: int, tie_embeddings: bool) -> int:
    """FLOPs обучения на токен по правилу 6N: N — без эмбеддинга и отдельной выходной головы."""
    tables = 1 if tie_embeddings else 2
    return 6 * (total_params - tables * V * D)


def flops_per_token(n_params: int, L: int, S: int, D: int) -> int:
    """FLOPs обучения на токен: 6N и внимание по полному квадрату.

    Прямой проход внимания: два произведения, оценки и смешивание, каждое 2·S·D на токен в слое;
    обратный вдвое дороже.
    """
    return 6 * n_params + 12 * L * S * D


def kv_cache_bytes(B: int, S: int, L: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    """Байты кеша KV: ключ и значение на каждый токен, слой и голову K. От N кеш не зависит."""
    return 2 * B * S * L * K * H * bytes_per_value


def crossover_batch(weight_bytes: float, S: int, L: int, K: int, H: int, bytes_per_value: float) -> float:
    """Пакет, при котором кеш KV занимает столько же, сколько веса."""
    return weight_bytes / (2 * S * L * K * H * bytes_per_value)


def moe_params(L: int, attention: int, expert: int, E: int, k: int) -> tuple[int, int]:
    """Параметры смеси экспертов: (все, активные на токен)."""
    return L * (attention + E * expert), L * (attention + k * expert)


def moe_costs(total_params: int, active_params: int, bytes_per_param: float) -> tuple[float, float]:
    """Цена смеси экспертов: (байты весов, FLOPs обучения на токен).

    Хранить приходится всех экспертов, а считает токен только через своих.
    """
    return total_params * bytes_per_param, 6 * active_params


def training_days(n_params: float, tokens: float, gpus: int, peak_flops_per_s: float, mfu: float) -> float:
    """Сутки обучения: работа 6·N·T на достигнутой скорости всех карт."""
    return 6 * n_params * tokens / (gpus * peak_flops_per_s * mfu) / SECONDS_PER_DAY
