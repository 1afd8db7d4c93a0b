"""Случайные модели для проверки свойств: маленькие, но со всеми полями Spec."""

from __future__ import annotations

from hypothesis import strategies as st

from nanolm.spec import Spec

#: Размеры, по которым счета обязаны расти.
GROWING = ("V", "D", "L", "H", "F")


@st.composite
def attentions(draw: st.DrawFn) -> dict[str, object]:
    """Поля внимания: обычное с группами или латентное."""
    K, G = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    fields: dict[str, object] = {"N": K * G, "K": K, "H": draw(st.integers(1, 24))}
    if draw(st.integers(0, 4)) == 0:
        return {
            **fields, "K": K * G, "kv_rank": draw(st.integers(1, 30)), "q_rank": draw(st.integers(0, 20)),
            "rope_H": draw(st.integers(1, 12)), "value_H": draw(st.integers(1, 20)),
        }  # fmt: skip
    qk_norm = draw(st.booleans())
    return {
        **fields, "qk_norm": qk_norm, "qk_norm_wide": qk_norm and draw(st.booleans()), "sinks": draw(st.booleans()),
    }  # fmt: skip


@st.composite
def mixtures(draw: st.DrawFn, L: int) -> dict[str, object]:
    """Поля смеси экспертов или ничего."""
    if draw(st.booleans()):
        return {}
    experts, dense = draw(st.integers(1, 9)), draw(st.integers(0, L - 1))
    return {
        "experts": experts, "experts_per_token": draw(st.integers(1, experts)), "router_bias": draw(st.booleans()),
        "shared_F": draw(st.integers(0, 40)), "dense_layers": dense,
        "dense_F": draw(st.integers(1, 60)) if dense else 0,
    }  # fmt: skip


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Любая допустимая модель."""
    L = draw(st.integers(1, 5))
    windows = st.one_of(st.none(), st.integers(1, 60))
    flags = ("tie_embeddings", "gated_ffn", "qkv_bias", "out_bias", "ffn_bias", "norm_bias", "post_norms")
    fields: dict[str, object] = {
        "V": draw(st.integers(1, 500)), "D": draw(st.integers(1, 80)), "L": L, "F": draw(st.integers(1, 99)),
        "S": draw(st.integers(1, 70)), "pre_norms": draw(st.integers(0, 2)),
        "learned_positions": draw(st.sampled_from((0, 64))),
        "window": draw(st.one_of(windows, st.lists(windows, min_size=L, max_size=L).map(tuple))),
        **{name: draw(st.booleans()) for name in flags}, **draw(attentions()), **draw(mixtures(L)),
    }  # fmt: skip
    return Spec(**fields)  # type: ignore[arg-type]
