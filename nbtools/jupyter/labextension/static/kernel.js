// What a kernel is asked for beside its cells.

/**
 * Return what a kernel answers to an expression of Python: its status, and its value or its error. Nothing is run.
 * @param {any} kernel
 * @param {string} expression
 */
export const evaluated = async (kernel, expression) => {
  const request = { code: "", silent: true, store_history: false, user_expressions: { value: expression } };
  const { content } = await kernel.requestExecute(request).done;
  return content.user_expressions?.value;
};
