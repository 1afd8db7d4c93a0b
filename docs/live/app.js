// Живая часть страницы: упражнение или калькулятор. Python на страницу один.

import { Python } from "./client.js";

let python = null;

const SPECIAL = {
  calculator: () => import("./calculator.js"),
  interview: () => import("./interview.js"),
};

export async function mount(root, config) {
  python ??= new Python(config);
  if (root.dataset.exercise) {
    const { mountExercise } = await import("./exercise.js");
    mountExercise(root, python);
    return;
  }
  const [{ mountWidget }, special] = await Promise.all([
    import("./widget.js"),
    SPECIAL[root.dataset.widget]?.(),
  ]);
  const widget = mountWidget(root, python);
  special?.default(root, widget);
  widget.begin();
}
