# ---
# jupytext:
#   text_representation:
#     extension: .py
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # Галерея ошибок
#
# Здесь собраны настоящие ошибки счёта: из калькуляторов, библиотек, документации и обсуждений. У каждой названо
# место, где она жила, и показано, из какой формулы получалось неверное число. Рядом стоит верное, его считает
# `nanolm`. Всего на странице случаев: {glue:text}`count`.
#
# Смеяться тут не над чем. Почти все эти проекты уважаемые, и многое в них давно исправлено: случай описан таким,
# каким он был в названной версии или обсуждении. Ошибаются в счёте одинаково, и потому чужая ошибка — лучшая
# проверка для своего калькулятора.
#
# :::{admonition} Как читать
# :class: tip
#
# Каждая ячейка выполнена при сборке. `wrong` — неверная формула. Если число опубликовано, `assert` сверяет с ним:
# ошибка воспроизведена, а не придумана. Если в источнике только формула, она показана на известной модели.
# Закройте вывод рукой и попробуйте назвать причину сами.
# :::
#
# Буквы — те же, что на странице [обозначений](notation.md).

# %%
from nanolm import budget, units
from nanolm.budget import (
    Spec,
    flops_per_token,
    kv_cache_bytes,
    parameter_breakdown,
    training_memory,
)
from nanolm.figures import prose, table
from nanolm.hardware import gpu
from nanolm.ops import pairs
from nanolm.units import GB, GIB, KIB, MIB, decimal, gb, gib, number, percent
from nanolm.zoo import from_config, preset

cases = []


def mib(size):
    return decimal(size / MIB, 1) + "\u00a0МиБ"


def giga(flops):
    return decimal(flops / 1e9, 2) + "\u00a0GFLOPs"


def tera(rate):
    return decimal(rate / 1e12, 1) + "\u00a0TFLOP/s"


def times(ratio):
    """Отношение: почти единица — подробно, остальное — до сотых или тысячных."""
    close, usual = abs(ratio - 1) < 0.005, 0.1 < ratio < 100
    return decimal(ratio, 6 if close else 2 if usual else 3)


def case(name, place, wrong, right, show=number):
    """Записать случай и показать обе величины; `show` превращает число в слова."""
    assert show(wrong) != show(right), "ошибки не видно"
    ratio = times(wrong / right)
    cases.append((name, place, show(wrong), show(right), ratio))
    return table(
        ["", "величина", "от верного"],
        [("неверно", show(wrong), ratio), ("верно", show(right), "1")],
        name,
    )


# %% [markdown]
# ## Параметры
#
# ### Связанная голова посчитана дважды
#
# [paiml/aprender#625](https://github.com/paiml/aprender/issues/625) исправляет число параметров Qwen2.5-Coder-1.5B
# и называет «правильное». Но у этой модели выходная голова и эмбеддинг — одна матрица, а в названном числе она
# стоит два раза. Проверка проста: лишнее делится на $VD$ без остатка.

# %%
qwen = preset("qwen2.5-1.5b")  # у Coder та же геометрия
right = parameter_breakdown(qwen).total
wrong = right + qwen.V * qwen.D
assert wrong == 1_777_088_000
case("Голова и эмбеддинг — одна матрица", "paiml/aprender#625", wrong, right)

# %% [markdown]
# ### «У GPT-2 потерялась голова»
#
# [huggingface/transformers#14960](https://github.com/huggingface/transformers/issues/14960): в списке параметров
# GPT-2 нет `lm_head`, и кажется, что счёт неполон. Голова есть, но отдельной матрицы у неё нет, поэтому и
# параметров она не добавляет. Ожидание «с головой» завысило бы модель почти на треть. FLOPs у головы при этом
# остаются: умножать на матрицу всё равно нужно.

# %%
gpt2 = preset("gpt2")
right = parameter_breakdown(gpt2).total
wrong = right + gpt2.V * gpt2.D
assert right == 124_439_808
assert parameter_breakdown(gpt2)["lm_head"] == 0 < flops_per_token(gpt2)["lm_head"]
case(
    "Связанная голова не добавляет параметров",
    "huggingface/transformers#14960",
    wrong,
    right,
)

# %% [markdown]
# ### Голова связана у всех подряд
#
# [cli99/llm-analysis](https://github.com/cli99/llm-analysis) (код от ноября 2024) считает голову связанной у любой
# модели. У Llama 3 она отдельная: пропала вся матрица $V \times D$. Чем больше словарь, тем больше промах.

# %%
llama = preset("llama-3-8b")
right = parameter_breakdown(llama).total
wrong = right - llama.V * llama.D
assert (wrong, right) == (7_504_924_672, 8_030_261_248)
case("Отдельная голова принята за связанную", "cli99/llm-analysis", wrong, right)

# %% [markdown]
# ### Нет головы, и единица не та
#
# `accelerate estimate-memory` 1.15 ([huggingface/accelerate](https://github.com/huggingface/accelerate)) строит
# `AutoModel`, а это модель без языковой головы. Затем байты делятся на $2^{30}$ и подписываются «GB». Две ошибки
# складываются, и веса Llama 3 8B в fp32 выглядят на восьмую часть легче настоящих.

# %%
wrong = (parameter_breakdown(llama).total - llama.V * llama.D) * 4 / GIB
right = training_memory(llama, recipe="fp32")["weights"] / GB
assert round(wrong, 2) == 27.96
case(
    "Модель без головы, ГиБ под именем ГБ",
    "huggingface/accelerate",
    wrong,
    right,
    lambda x: decimal(x) + "\u00a0ГБ",
)

# %% [markdown]
# ### Призрачные смещения
#
# Пакет llm-flops 0.0.1 даёт смещение каждой из четырёх проекций внимания Qwen2.5, а README обещает точное
# совпадение. Смещения у Qwen2.5 есть только у запроса, ключа и значения; выходная проекция без него. Лишнее —
# ровно $D$ на слой. Разница в тысячную процента, но точное число обязано быть точным: такой промах
# выдаёт, что описание модели угадано.

# %%
qwen = preset("qwen2.5-7b")
right = parameter_breakdown(qwen).total
wrong = right + qwen.L * qwen.D
assert (wrong, right) == (7_615_716_864, 7_615_616_512)
case("Смещение, которого нет", "llm-flops 0.0.1", wrong, right)

# %% [markdown]
# ### Забыты нормы запроса и ключа
#
# Тот же пакет не знает, что Qwen3 нормирует запрос и ключ после проекций: два вектора длины $H$ в каждом слое. На
# память и время это не влияет, но по разности видно причину: она делится на $2H$ и даёт ровно число слоёв.

# %%
qwen = preset("qwen3-4b")
right = parameter_breakdown(qwen).total
wrong = right - 2 * qwen.L * qwen.H
assert (wrong, right) == (4_022_458_880, 4_022_468_096)
assert (right - wrong) / (2 * qwen.H) == qwen.L
case("Нормы запроса и ключа", "llm-flops 0.0.1", wrong, right)

# %% [markdown]
# ### Две нормы на слой вместо четырёх
#
# Gemma 2 ставит норму не только перед вниманием и полносвязным блоком, но и после них. Кто считает по шаблону
# Llama, теряет $2D$ на слой. Шаблон не виноват: он просто описывает другую модель, и калькулятор должен был
# заметить, что семейство ему незнакомо.

# %%
gemma = preset("gemma-2-9b")
right = parameter_breakdown(gemma).total
wrong = right - 2 * gemma.L * gemma.D
assert (wrong, right) == (9_241_404_928, 9_241_705_984)
case("Нормы на выходе блоков", "llm-flops 0.0.1", wrong, right)

# %% [markdown]
# ### Миллиард равен $2^{30}$
#
# В README счётчика из [InternLM/xtuner](https://github.com/InternLM/xtuner) Qwen3-8B насчитывает «7,6 B»: число
# параметров поделено на $1024^3$, как будто это байты. Параметры считают в миллиардах, двоичных миллиардов не
# бывает. Заодно пропали и нормы запроса и ключа.

# %%
qwen = preset("qwen3-8b")
right = parameter_breakdown(qwen).total / 1e9
wrong = (parameter_breakdown(qwen).total - 2 * qwen.L * qwen.H) / 2**30
assert round(wrong, 3) == 7.628
case(
    "Параметры в двоичных миллиардах",
    "InternLM/xtuner",
    wrong,
    right,
    lambda x: decimal(x, 3) + "\u00a0млрд",
)

# %% [markdown]
# ### Восемь экспертов прочитаны как один
#
# [hahnyuan/LLM-Viewer](https://github.com/hahnyuan/LLM-Viewer) (снимок 2024 года) читает Mixtral как плотную Llama:
# один полносвязный блок вместо восьми, и без отдельной головы. То же число llm-analysis выдаёт за активные
# параметры; то же описание — один блок и связанная голова — названо и в
# [jranaraki/vllm-fit#27](https://github.com/jranaraki/vllm-fit/issues/27). Хранить нужно всех экспертов, сколько
# бы их ни работало.

# %%
mixtral = preset("mixtral-8x7b")
right = parameter_breakdown(mixtral).total
dense = Spec(
    **{letter: getattr(mixtral, letter) for letter in "VDLNKHF"},
    tie_embeddings=True,
)
wrong = parameter_breakdown(dense).total
assert (wrong, right) == (7_110_660_096, 46_702_792_704)
case("Смесь прочитана плотной моделью", "hahnyuan/LLM-Viewer", wrong, right)

# %% [markdown]
# ### Активные параметры по доле экспертов
#
# Пакет ridgepoint 0.1.2 оценивает активные параметры как $P\,k/E$, но не меньше 12 % от всех. У gpt-oss-120b
# работают 4 эксперта из 128, и срабатывает нижняя граница. Делить на доли нельзя: внимание, эмбеддинг и голова
# работают целиком, а эксперты — на $k/E$. Складывать нужно по строкам.

# %%
layers = ["sliding_attention", "full_attention"] * 18
oss120 = from_config({
    "model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "layer_types": layers,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "attention_bias": True,
})  # fmt: skip
parameters = parameter_breakdown(oss120)
wrong = max(parameters.total * 4 / 128, 0.12 * parameters.total)
right = parameters.active
assert round(wrong / 1e9, 1) == 14.0
assert round(right / 1e9, 2) == 5.71
case("Активные параметры как доля всех", "ridgepoint 0.1.2", round(wrong), right)

# %% [markdown]
# ## Кеш KV
#
# ### Забыта двойка
#
# Калькулятор памяти из [EleutherAI/cookbook](https://github.com/EleutherAI/cookbook) (код от марта 2026) для вывода
# считает $L \cdot S \cdot NH$ значений. Но кешируют и ключ, и значение: тензоров два.

# %%
llama2 = preset("llama-2-7b")
right = kv_cache_bytes(llama2, 1, 4096).total
wrong = llama2.L * 4096 * llama2.N * llama2.H * 2
assert (wrong, right) == (GIB, 2 * GIB)
case("Ключ и значение — это два тензора", "EleutherAI/cookbook", wrong, right, gib)

# %% [markdown]
# ### GQA задано и не учтено
#
# Тот же калькулятор принимает отношение голов `-kv 0.25`, но в формулу кеша оно не попадает: голов по-прежнему
# $N$, а не $K$. Две ошибки идут навстречу друг другу — вчетверо больше и вдвое меньше, — и результат
# выглядит правдоподобно.

# %%
right = kv_cache_bytes(llama, 1, 8192).total
wrong = llama.L * 8192 * llama.N * llama.H * 2
assert (wrong, right) == (2 * GIB, GIB)
case("Голов кеша K, а не N", "EleutherAI/cookbook", wrong, right, gib)

# %% [markdown]
# ### Чтение кеша по головам запроса
#
# [hahnyuan/LLM-Viewer#12](https://github.com/hahnyuan/LLM-Viewer/issues/12): в ветке FlashAttention шаг генерации
# читает кеш для каждой головы запроса. Ядро читает ключ и значение один раз на группу голов, поэтому байты
# завышены в $N/K$ раз, а с ними и время шага.

# %%
right = kv_cache_bytes(llama, 1, 8192).total
wrong = right * llama.N // llama.K
assert wrong == 4096 * MIB
case("Кеш читается раз на группу голов", "hahnyuan/LLM-Viewer#12", wrong, right, gib)

# %% [markdown]
# ### Лишние головы
#
# [jranaraki/vllm-fit#2](https://github.com/jranaraki/vllm-fit/issues/2): в формуле кеша ширина $D$ умножена ещё и на
# число голов $N$, хотя $D$ уже состоит из голов. Байты при этом взяты как 4/8. У модели 7B без GQA ошибка
# равна $N/4$, то есть восьми.

# %%
right = kv_cache_bytes(llama2, 1, 1).total
wrong = 2 * llama2.L * llama2.N * llama2.D * 4 // 8
assert wrong == 8 * right == 4_194_304
case("Головы посчитаны дважды", "jranaraki/vllm-fit#2", wrong, right)

# %% [markdown]
# ### Размер головы выведен делением
#
# [LMCache/LMCache#688](https://github.com/LMCache/LMCache/issues/688) и
# [NVIDIA/Model-Optimizer#2482](https://github.com/NVIDIA/Model-Optimizer/issues/2482): размер головы взят как
# $D/N$. У Llama это так, а у Qwen3-4B, Gemma и gpt-oss размер головы — отдельное поле `head_dim`. У Qwen3-4B
# деление даёт 80 вместо 128.

# %%
qwen = preset("qwen3-4b")
right = kv_cache_bytes(qwen, 1, 8192).total
wrong = kv_cache_bytes(qwen.replace(H=qwen.D // qwen.N), 1, 8192).total
assert (wrong, right) == (720 * MIB, 1152 * MIB)
case("Размер головы не равен D/N", "LMCache/LMCache#688", wrong, right, mib)

# %% [markdown]
# ### Латентное внимание посчитано как обычное
#
# DeepSeek-V3 хранит на токен один сжатый вектор на все головы. Обычная формула со 128 головами завышает кеш в
# двадцать пять раз: [NVIDIA/TensorRT-LLM#16707](https://github.com/NVIDIA/TensorRT-LLM/pull/16707). То же делали
# hf-mem 0.5.6 и llm-analysis. Сверх того здесь и голова выведена делением $D/N$.

# %%
deepseek = preset("deepseek-v3")
right = kv_cache_bytes(deepseek, 1, 1).total
wrong = 2 * deepseek.L * deepseek.N * (deepseek.D // deepseek.N) * 2
assert (wrong, right) == (1_748_992, 70_272)
assert 24 < wrong / right < 26
case("У MLA кеш не на голову", "NVIDIA/TensorRT-LLM#16707", wrong, right)

# %% [markdown]
# ### Латентное внимание посчитано как одна голова
#
# Бывает и наоборот. [unslothai/unsloth#4757](https://github.com/unslothai/unsloth/pull/4757) чинит оценку, которая у
# DeepSeek-V3.1 впятеро занижена: в файле GGUF записана одна голова кеша, а её размер выведен как $D/N = 56$.
# Настоящая ширина кеша — 576 на слой. Контекст здесь полный, 163 840 токенов.

# %%
tokens = 163_840
wrong = 2 * deepseek.L * 1 * (deepseek.D // deepseek.N) * tokens * 2
right = kv_cache_bytes(deepseek, 1, tokens).total
assert (round(wrong / GIB, 2), round(right / GIB, 2)) == (2.08, 10.72)
case("У MLA нет головы размера D/N", "unslothai/unsloth#4757", wrong, right, gib)

# %% [markdown]
# ### Исправление с новой ошибкой
#
# [LMCache/LMCache#694](https://github.com/LMCache/LMCache/pull/694) учит калькулятор латентному вниманию формулой
# $2 \cdot L \cdot S \cdot 512$. Двойки тут нет: ключ и значение восстанавливают из одного вектора. Зато
# забыта вращаемая часть ключа: к $C = 512$ нужно прибавить $R = 64$.

# %%
wrong = 2 * deepseek.L * deepseek.kv_rank * 2
right = kv_cache_bytes(deepseek, 1, 1).total
assert right == deepseek.L * (deepseek.kv_rank + deepseek.rope_H) * 2
case("У MLA вектор один, но с вращаемой частью", "LMCache/LMCache#694", wrong, right)

# %% [markdown]
# ### 512 + 64 = 572
#
# В [gpustack/gguf-parser-go#8](https://github.com/gpustack/gguf-parser-go/issues/8) кеш DeepSeek-V3 посчитан от руки
# по статье: 65 536 токенов в четырёх битах. Сумма сложена с ошибкой, но главное — это один слой, а их 61. Байты
# притом двоичные, хотя подписаны как МБ.

# %%
tokens = 65_536
wrong = tokens * 572 // 2
assert wrong == 17.875 * MIB
right = kv_cache_bytes(deepseek, 1, tokens, "int8").total // 2
assert right == 1098 * MIB == deepseek.L * 18 * MIB
case("Кеш одного слоя вместо всех", "gpustack/gguf-parser-go#8", wrong, right, mib)

# %% [markdown]
# ### Окно во всех слоях
#
# У gpt-oss-20b окно в 128 токенов стоит через слой: 12 слоёв из 24 видят весь контекст. llm-flops 0.0.1 применяет
# окно ко всем. Кеш становится невесомым. Окно — свойство слоя, а не модели.

# %%
oss = preset("gpt-oss-20b")
right = kv_cache_bytes(oss, 1, 8192).total
wrong = kv_cache_bytes(oss.replace(window=128), 1, 8192).total
assert (wrong, right) == (6 * MIB, 195 * MIB)
case("Окно есть не в каждом слое", "llm-flops 0.0.1", wrong, right, mib)

# %% [markdown]
# ### Слои с окном выброшены
#
# Противоположная крайность — [alvarobartt/hf-mem#60](https://github.com/alvarobartt/hf-mem/issues/60): у gpt-oss-120b
# слои с окном в кеш не вошли вовсе. Пока контекст короче окна, такой слой хранит столько же, сколько обычный, и
# половина кеша пропала.

# %%
right = kv_cache_bytes(oss120, 1, 1).total
full_layers = sum(window is None for window in oss120.windows)
wrong = right * full_layers // oss120.L
assert (wrong, right) == (36_864, 73_728)
case("Слой с окном тоже хранит кеш", "alvarobartt/hf-mem#60", wrong, right)

# %% [markdown]
# ### Одна голова вместо тридцати двух
#
# В уроке из
# [rohitg00/ai-engineering-from-scratch#57](https://github.com/rohitg00/ai-engineering-from-scratch/pull/57) кеш
# модели 7B при 32 768 токенах — «512 МБ». Формула написана для одной головы, а дальше умножена только на слои и
# токены. Хорошая проверка порядка: кеш обычной модели 7B — полмегабайта на токен.

# %%
right = kv_cache_bytes(llama2, 1, 32_768).total
wrong = 2 * llama2.H * 2 * llama2.L * 32_768
assert (wrong, right) == (512 * MIB, 16 * GIB)
assert kv_cache_bytes(llama2, 1, 1).total == 512 * KIB
case("Кеш одной головы", "rohitg00/ai-engineering-from-scratch#57", wrong, right, gib)

# %% [markdown]
# ### Гигабайты под именем гибибайтов
#
# Таблица вывода в [jax-ml/scaling-book](https://github.com/jax-ml/scaling-book) (снимок февраля 2025) называет кеш
# LLaMA-2-13B на 8192 токена в «6,7 GiB». Это 6,7 гигабайта. Разница в семь процентов кажется мелочью,
# пока модель не встаёт на карту впритык.

# %%
size = kv_cache_bytes(preset("llama-2-13b"), 1, 8192).total
wrong, right = size / GB, size / GIB
assert (round(wrong, 1), right) == (6.7, 6.25)
case(
    "ГБ названы ГиБ",
    "jax-ml/scaling-book",
    wrong,
    right,
    lambda x: decimal(x) + "\u00a0ГиБ",
)

# %% [markdown]
# ### Кеш KV в памяти обучения
#
# [manuelescobar-dev/LLM-Tools#6](https://github.com/manuelescobar-dev/LLM-Tools/issues/6): к памяти обучения
# прибавлен кеш KV. Кеш нужен, чтобы при генерации не пересчитывать прошлое. При обучении все позиции известны
# сразу: ключи и значения есть, но это активации, и они уже посчитаны.

# %%
account = training_memory(llama2, B=1, S=4096)
assert "kv_cache" not in account
right = account.total
wrong = right + kv_cache_bytes(llama2, 1, 4096).total
case("Кеша при обучении нет", "manuelescobar-dev/LLM-Tools#6", wrong, right, gib)

# %% [markdown]
# ## FLOPs
#
# ### Поиск в эмбеддинге посчитан умножением
#
# [tenstorrent/tt-metal#50114](https://github.com/tenstorrent/tt-metal/pull/50114) исправляет {term}`MFU` обучения
# TinyLlama: было 35 %, стало 33,2 %. До правки строка эмбеддинга стоила столько же, сколько голова. Но выбрать
# строку таблицы — не умножить на матрицу: операций ноль. Возьмём счёт `nanolm` и прибавим лишнее: доля сойдётся
# до последней цифры.

# %%
tiny = preset("tinyllama-1.1b")
useful = flops_per_token(tiny, 2048).total
with_lookup = useful + 6 * tiny.V * tiny.D
wrong, right = 0.35, 0.35 * useful / with_lookup
assert round(right, 3) == 0.332
case(
    "Поиск в таблице — не произведение",
    "tenstorrent/tt-metal#50114",
    wrong,
    right,
    percent,
)

# %% [markdown]
# ### Связанная голова ничего не стоит
#
# [pytorch/torchtitan#3225](https://github.com/pytorch/torchtitan/pull/3225): общая матрица вычиталась из параметров
# дважды, и FLOPs головы пропадали. Связаны веса, а не работа: логиты всё равно считают, и у маленькой модели с
# большим словарём это пятая часть всех операций. В
# [huggingface/trl#6708](https://github.com/huggingface/trl/issues/6708) голову тоже обнуляли, но платили за поиск
# в эмбеддинге: у связанной модели сумма сходилась случайно, у раздельной голова стоила вдвое.

# %%
small = preset("llama-3.2-1b")
account = flops_per_token(small, 2048)
right, wrong = account.total, account.total - account["lm_head"]
assert flops_per_token(small.replace(tie_embeddings=False), 2048).total == right
case("Связанная голова всё равно умножает", "pytorch/torchtitan#3225", wrong, right, giga)

# %% [markdown]
# ### GQA будто бы экономит FLOPs
#
# Первое исправление в [allenai/OLMo-core#478](https://github.com/allenai/OLMo-core/pull/478) считало оценки внимания
# по $K$ головам; так же ошибалась проверка скорости в
# [facebookresearch/xformers#1404](https://github.com/facebookresearch/xformers/pull/1404). GQA уменьшает кеш, а не
# работу: каждая из $N$ голов запроса умножается на свой ключ, пусть и общий с соседями.

# %%
right = flops_per_token(llama, 8192)["scores"]
wrong = right * llama.K // llama.N
assert right == 12 * llama.L * llama.N * llama.H * 8192
case("Оценок внимания N, а не K", "allenai/OLMo-core#478", wrong, right, giga)

# %% [markdown]
# ### Внимание удвоено
#
# Рецензент [SemiAnalysisAI/InferenceX-app#849](https://github.com/SemiAnalysisAI/InferenceX-app/pull/849) заметил:
# у Llama 3.3 70B на каждый токен контекста записано 65 536 FLOPs на слой, а формула рядом, $4NH$, даёт вдвое
# меньше. Четвёрка уже содержит и умножение со сложением, и оба произведения — с ключами и со значениями.

# %%
big = preset("llama-3-70b")
right = flops_per_token(big, 8192, training=False)["scores"] // big.L // 8192
wrong = 2 * right
assert (wrong, right) == (65_536, 4 * big.N * big.H)
case("Двойка взята дважды", "SemiAnalysisAI/InferenceX-app#849", wrong, right)

# %% [markdown]
# ### Прямоугольник вместо квадрата
#
# [facebookresearch/xformers#1402](https://github.com/facebookresearch/xformers/pull/1402): четыре запроса, десять
# ключей, маска прижата к последнему. Для второго произведения пары посчитаны как квадрат лишних ключей, а это
# прямоугольник «запросы на ключи». Библиотека исправилась на 1536: треугольник под маской она принимает за
# половину квадрата, $T^2/2$. Точное число пар с диагональю — $T(T+1)/2$, его и даёт `pairs`.

# %%
T, S, H, U = 4, 10, 8, 16  # запросы, ключи, размеры ключа и значения
extra = S - T
triangle = T * T * (H + U)
wrong = 2 * T * extra * H + 2 * extra * extra * U + triangle
assert wrong == 1920
assert 2 * T * extra * (H + U) + triangle == 1536
right = 2 * pairs(T, S, causal=True) * (H + U)
case("Пары запросов и ключей", "facebookresearch/xformers#1402", wrong, right)

# %% [markdown]
# ### Внимание не видно счётчику
#
# [MrYxJ/calculate-flops.pytorch#26](https://github.com/MrYxJ/calculate-flops.pytorch/issues/26): счётчик перехватывает
# матричные умножения, а `scaled_dot_product_attention` — одна слитая операция, которой в его списке нет. На
# длинном контексте пропадает заметная часть работы. Проверьте свой счётчик двумя длинами: если FLOPs на токен
# не растут, внимания в них нет.

# %%
account = flops_per_token(llama, 8192, training=False)
right, wrong = account.total, account.total - account["scores"]
case(
    "Слитое внимание пропущено",
    "MrYxJ/calculate-flops.pytorch#26",
    wrong,
    right,
    giga,
)

# %% [markdown]
# ### Ширина блока принята и забыта
#
# Калькулятор FLOPs из [EleutherAI/cookbook](https://github.com/EleutherAI/cookbook) принимает
# `--ffn-hidden-size 14336`, но считает с $4D$. Программа не сообщает об этом, а число похоже на правду.

# %%
right = flops_per_token(llama, 8192)["ffn"]
wrong = 6 * 3 * llama.D * (4 * llama.D) * llama.L
assert (round(wrong / 1e9, 2), round(right / 1e9, 2)) == (38.65, 33.82)
case("F принято, но не использовано", "EleutherAI/cookbook", wrong, right, giga)

# %% [markdown]
# ### Две матрицы вместо трёх
#
# [allenai/open-instruct#1096](https://github.com/allenai/open-instruct/pull/1096) чинит FLOPs полносвязного блока:
# посчитаны расширение и сжатие, а у {term}`SwiGLU` есть ещё ворота. Размер головы там тоже брали делением.
# Автор правки называет в пример Qwen3-4B.

# %%
account = flops_per_token(qwen, 8192, training=False)
right = account["ffn"]
wrong = 2 * 2 * qwen.D * qwen.F * qwen.L
assert 3 * wrong == 2 * right
case("У SwiGLU три матрицы", "allenai/open-instruct#1096", wrong, right, giga)

# %% [markdown]
# ### У головы нет обратного прохода
#
# В том же калькуляторе EleutherAI слои при обучении стоят втрое дороже прямого прохода, а голова — столько же,
# сколько прямой. Её градиенты по входу и по весу — такие же произведения.

# %%
right = flops_per_token(llama)["lm_head"]
wrong = 2 * llama.V * llama.D
assert (round(wrong / 1e9, 2), round(right / 1e9, 2)) == (1.05, 3.15)
case("Обратный проход головы", "EleutherAI/cookbook", wrong, right, giga)

# %% [markdown]
# ### FLOPs смеси по всем экспертам
#
# В [pytorch/torchtitan#4300](https://github.com/pytorch/torchtitan/pull/4300) сравнили два счёта Qwen3-30B-A3B при
# контексте 8192. Один умножил на шесть все параметры, будто работают все 128 экспертов. Его число получается
# точно, если к $6P$ прибавить половину внимания. У `nanolm` чуть меньше второго, верного: мы не считаем
# нормы умножениями.

# %%
moe = preset("qwen3-30b-a3b")
account = flops_per_token(moe, 8192)
wrong = 6 * parameter_breakdown(moe).total + account["scores"] // 2
assert wrong == 192_856_412_160
right = account.total
assert 37_578_559_488 - right == 6 * parameter_breakdown(moe)["norms"]
case("Работают k экспертов из E", "pytorch/torchtitan#4300", wrong, right, giga)

# %% [markdown]
# ## Скорость и MFU
#
# ### Пик с разреженностью
#
# Вопрос в
# [foundation-model-stack/fms-fsdp#89](https://github.com/foundation-model-stack/fms-fsdp/issues/89): почему у меня MFU
# вдвое ниже вашего? Потому что в знаменателе стоит рекламный пик H100, 1979 TFLOP/s. Он достижим, только если
# половина весов — нули в нужном узоре. Плотный пик вдвое меньше. Тот же вопрос задавали Megatron-LM, FlashMLA,
# nanochat.

# %%
h100 = gpu("h100-sxm")
reached = 480e12  # скорость из вопроса
wrong = reached / 1979e12
right = reached / h100.rate("bf16")
assert round(wrong, 3) == 0.243
case(
    "Пик с разреженностью",
    "foundation-model-stack/fms-fsdp#89",
    wrong,
    right,
    percent,
)

# %% [markdown]
# ### MFU больше ста процентов
#
# [karpathy/nanoGPT#464](https://github.com/karpathy/nanoGPT/pull/464): «104 %» на H100. Скорость поделили на пик
# A100, который был зашит в коде. Доля больше единицы хотя бы заметна; если бы карта была хуже, ошибка
# промолчала бы.

# %%
a100 = gpu("a100-80")
wrong = 1.04
right = wrong * a100.rate("bf16") / h100.rate("bf16")
case("Пик чужой карты", "karpathy/nanoGPT#464", wrong, right, percent)

# %% [markdown]
# ### Плотный пик поделён ещё раз
#
# [allenai/OLMo-core#614](https://github.com/allenai/OLMo-core/pull/614): таблица хранит пики с разреженностью, и код
# делит их пополам. А у A100 в ней уже стоял плотный. После деления пик вдвое меньше настоящего, а MFU вдвое
# больше.

# %%
right = a100.rate("bf16")
wrong = 312e12 / 2
assert right == 312e12
case("Плотный пик A100", "allenai/OLMo-core#614", wrong, right, tera)

# %% [markdown]
# ### Шаг генерации читает двух экспертов
#
# llm-flops 0.0.1 оценивает шаг Mixtral с пакетом 16 на H100 так, будто из памяти нужны двое экспертов. Но
# двоих выбирает каждый токен, и на шестнадцать токенов нужны почти все восемь: в среднем $E(1 - (1 - k/E)^B)$.

# %%
step = budget.decode_step_time(mixtral, 16, 1024, "h100-sxm")
read = parameter_breakdown(mixtral).active * 2 + step.cache_bytes
wrong = read / h100.bandwidth_bytes_per_s
right = step.seconds
assert (round(wrong * 1e3, 2), round(right * 1e3, 1)) == (8.33, 28.2)
case("Экспертов выбирает каждый токен", "llm-flops 0.0.1", wrong, right, units.duration)

# %% [markdown]
# ## Память
#
# ### Память смеси по активным параметрам
#
# [AlexsJones/llmfit#230](https://github.com/AlexsJones/llmfit/issues/230): программа советует модели, которые не
# помещаются. Она умножает на байты активные параметры, и DeepSeek-V3 у неё занимает 22 ГБ. Эксперт, который
# сейчас не нужен, понадобится следующему токену, и лежать он должен рядом. Байты на параметр и запас взяты
# из самого llmfit: 0,58 и 10 %.

# %%
parameters = parameter_breakdown(deepseek)
per_parameter = 0.58 * 1.1
wrong = parameters.active * per_parameter
right = parameters.total * per_parameter
assert round(37e9 * per_parameter / GIB) == 22
case("Хранят всех экспертов", "AlexsJones/llmfit#230", round(wrong), round(right), gib)

# %% [markdown]
# ### Четыре бита — это не четыре бита
#
# [runpod/docs#839](https://github.com/runpod/docs/pull/839): «модели 70B в четырёх битах хватит 35 ГБ». Файл Q4_K_M,
# который все скачивают, занимает 4,82 бита на вес: масштабы блоков и слои повышенной точности тоже чего-то стоят.
# Разница решает, встанет ли модель на карту в 40 ГБ.

# %%
total = parameter_breakdown(big).total
wrong, right = total * 4 / 8, total * 4.82 / 8
assert round(wrong / GB) == 35
assert round(right / GB, 1) == 42.5
case("Бит на вес больше четырёх", "runpod/docs#839", round(wrong), round(right), gb)

# %% [markdown]
# ### fp32 под именем bf16
#
# В [huggingface/trl#3678](https://github.com/huggingface/trl/issues/3678) логиты двух последовательностей по 256
# токенов названы тензором bf16 на 310 МБ. Это их размер в fp32, в bf16 вдвое меньше. Ошибка поучительна
# тем, что потери обычно и правда считают в fp32: важно знать, какой тензор меришь.

# %%
values = 2 * 256 * 151_665
wrong, right = (values * budget.DTYPES[dtype] for dtype in ("fp32", "bf16"))
assert round(wrong / 1e6, 1) == 310.6
case(
    "Не те байты на значение",
    "huggingface/trl#3678",
    wrong,
    right,
    units.decimal_bytes,
)

# %% [markdown]
# ### Оценка DeepSpeed: чего в ней нет
#
# В [deepspeedai/DeepSpeed#4527](https://github.com/deepspeedai/DeepSpeed/issues/4527) оценщик ZeRO-3 обещает модели
# 6,8 млрд «29,01 GB» на каждую из четырёх карт, а занято больше. Число честное, но это состояния без активаций и
# буферов, и единица — ГиБ. В гигабайтах, в которых продают память, там больше тридцати одного.

# %%
size = 4 * 131e6 + 18 * 6805e6 / 4
wrong, right = round(size / GIB * GB), round(size)
assert round(wrong / GB, 2) == 29.01
case("ГиБ названы ГБ", "deepspeedai/DeepSpeed#4527", wrong, right, gb)

# %% [markdown]
# ### Полный чекпоинтинг, который почти ничего не чистит
#
# Калькулятор EleutherAI на `--checkpoint-activations` отвечает $34\,SBDL$ байт. Это память при *выборочном*
# пересчёте, когда отбрасывают только квадрат внимания. При полном от слоя остаётся его вход: $2\,SBDL$ и немного
# сверху.

# %%
account = training_memory(llama2, B=1, S=2048, checkpointing="full")
right = account["activations"]
wrong = 34 * 2048 * llama2.D * llama2.L
assert wrong == 8.5 * GIB
assert 1 < right / (2 * 2048 * llama2.D * llama2.L) < 1.1
case("Выборочный пересчёт принят за полный", "EleutherAI/cookbook", wrong, right, gib)

# %% [markdown]
# ## Все случаи

# %% tags=["hide-input"]
assert len(cases) >= 30
assert len({name for name, *_ in cases}) == len(cases)
table(["ошибка", "где", "неверно", "верно", "во сколько раз"], cases)

# %% tags=["remove-cell"]
prose(
    count=str(len(cases)),
)

# %% [markdown]
# ## Чему учит галерея
#
# Ошибок много, причин мало.
#
# 1. **Модель угадана, а не прочитана.** Размер головы, нормы, смещения, окна, связанная голова — всё это поля
#    `config.json`. Чего калькулятор не разобрал, о том он должен сказать.
# 2. **Перепутано, что уменьшает приём.** GQA и MLA уменьшают кеш, но не оценки внимания. Смесь уменьшает FLOPs, но не
#    память. Связанная голова — параметры, но не работу.
# 3. **Потерян множитель.** Двойка ключа и значения, тройка обратного прохода, слои, головы. Помогает проверка
#    порядка и формула с единицами.
# 4. **Не названа единица или соглашение.** ГБ и ГиБ, плотный и разреженный пик, бит на вес. Число без соглашения —
#    ещё не число; об этом страница «[Соглашения](conventions.py)».
#
# Три проверки ловят почти всё: сверить сумму параметров с моделью до единицы, удвоить один множитель и посмотреть,
# удвоился ли ответ, и посчитать то же самое вторым способом.
