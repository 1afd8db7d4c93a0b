"""Форма: числа из строк, адрес, разметка полей."""

from __future__ import annotations

import pytest
from markup import Page

from nanolm.live import form as forms

FORM = forms.Form(
    "toy",
    (
        forms.Group(
            "Числа",
            (
                forms.Field("B", "размер", default="1", letter="B", unit="штук", hint="подсказка"),
                forms.Field("speed", "скорость", "range", "2", low=0, high=4),
                forms.Field("kind", "вид", "select", "a", options=lambda: {"": [("a", "А")], "Ещё": [("b", "Б")]}),
            ),
        ),
        forms.Group(
            "Прочее", (forms.Field("flag", "флажок", "checkbox"), forms.Field("text", "текст", "hidden")), folded=True
        ),
    ),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", None), ("  ", None), ("8192", 8192), ("8 192", 8192), ("8\u00a0192", 8192), ("15e12", 15 * 10**12),
     ("1,5e3", 1500), ("-3", -3), ("+4", 4), ("2.0", 2), ("123456789012345678901", 123456789012345678901)],
)  # fmt: skip
def test_whole_number_reads_what_people_write(text: str, value: int | None) -> None:
    assert forms.whole_number({"B": text}, "B") == value


@pytest.mark.parametrize("text", ["x", "1.5", "1e400", "nan", "inf", "²", "9" * 5000, "1e", "--1", "0x10"])
def test_not_a_whole_number_names_the_field(text: str) -> None:
    with pytest.raises(ValueError, match=r"^B = .*: нужно целое число$"):
        forms.whole_number({"B": text}, "B")


def test_real_number_takes_comma_and_point() -> None:
    assert forms.real_number({"mfu": "0,45"}, "mfu") == forms.real_number({"mfu": "0.45"}, "mfu") == 0.45
    assert forms.real_number({"mfu": ""}, "mfu") is None
    with pytest.raises(ValueError, match=r"^mfu = 'много': нужно число$"):
        forms.real_number({"mfu": "много"}, "mfu")


@pytest.mark.parametrize("text", ["-1", "5", "nan", "inf", "x"])
def test_slider_stays_on_its_scale(text: str) -> None:
    with pytest.raises(ValueError, match=r"^speed = "):
        forms.slider({"speed": text}, FORM.fields["speed"])
    assert forms.slider({"speed": ""}, FORM.fields["speed"]) == 2


def test_choice_names_the_list() -> None:
    assert forms.choice({"kind": ""}, "kind", ("a", "b"), "a") == "a"
    with pytest.raises(ValueError, match=r"^kind = 'z': нужно одно из: a, b$"):
        forms.choice({"kind": "z"}, "kind", ("a", "b"), "a")


def test_address_holds_only_changes_and_no_hidden_text() -> None:
    state = FORM.complete({"B": "7", "text": "тайна", "чужой": "x"})
    assert "чужой" not in state
    assert FORM.query(state) == "B=7"
    assert FORM.query(FORM.default()) == ""
    assert FORM.query({**state, "B": "9" * 1000}) == ""


def test_blame_finds_the_field() -> None:
    assert FORM.blame("B = 3: нужно больше") == "B"
    assert FORM.blame("speed[2] = 3: нужно больше") == "speed"
    assert FORM.blame("size: мало", {"size": "B"}) == "B"
    assert FORM.blame("что-то не так") == ""


def test_every_field_has_label_error_place_and_hint() -> None:
    page = Page(FORM.html(FORM.complete({"flag": "on", "kind": "b"}), {"speed": "вдвое", "B": "по умолчанию"}))
    assert page.names == ["B", "speed", "kind", "flag", "text"]
    assert set(page.wanted) <= set(page.ids)
    assert {"toy-B", "toy-B-hint", "toy-B-error", "toy-speed", "toy-flag"} <= set(page.wanted)


def test_state_is_drawn() -> None:
    html = FORM.html(FORM.complete({"B": '"7"', "flag": "on", "kind": "b"}), {"speed": "вдвое", "B": "по умолчанию"})
    assert 'value="&quot;7&quot;"' in html
    assert 'placeholder="по умолчанию"' in html
    assert '<option value="b" selected>' in html
    assert "checked" in html
    assert '<output for="toy-speed" data-slot="speed-value">вдвое</output>' in html
