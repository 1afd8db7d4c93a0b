// Редактор кода: CodeMirror с Python, четырьмя пробелами отступа и клавишами курса.

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

const mark = StateEffect.define();

// Строка, на которой остановился Python; первая же правка снимает отметку.
const marked = StateField.define({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(mark)) {
        const number = Math.min(Math.max(effect.value, 1), transaction.state.doc.lines);
        const line = transaction.state.doc.line(number);
        return Decoration.set([Decoration.line({ class: "nanolm-failed-line" }).range(line.from)]);
      }
    }
    return transaction.docChanged ? Decoration.none : value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

export function openEditor(parent, code, label, { run, check, change }) {
  const keys = [
    { key: "Mod-Enter", run: () => (run(), true) },
    { key: "Shift-Mod-Enter", run: () => (check(), true) },
    indentWithTab,
  ];
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: code,
      extensions: [
        keymap.of(keys),
        lineNumbers(),
        history(),
        drawSelection(),
        indentUnit.of("    "),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        syntaxHighlighting(classHighlighter),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
        python(),
        marked,
        EditorView.editorAttributes.of({ class: "nanolm-editor" }),
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) change(update.state.doc.toString());
        }),
      ],
    }),
  });
  // Страница ловит «/» и стрелки: поиск и соседние уроки. Набранное в редакторе её не касается.
  view.dom.addEventListener("keydown", (event) => event.stopPropagation());
  return {
    code: () => view.state.doc.toString(),
    set: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    mark: (line) => view.dispatch({ effects: mark.of(line) }),
    focus: () => view.focus(),
  };
}
