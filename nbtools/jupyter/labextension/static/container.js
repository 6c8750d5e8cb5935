// What JupyterLab loads as a script, before anything else of the extension: a container of module federation, written
// by hand. The modules that Lab itself has come from the scope that `init` is called with.
(() => {
  /** @type {Record<string, Record<string, { get: () => Promise<() => any> }>>} */
  let scope = {};

  /**
   * Return a module that JupyterLab shares with its extensions.
   * @param {string} name
   */
  const shared = async (name) => {
    const [version] = Object.values(scope[name] ?? {});
    if (!version) throw new Error(`nbtools: this JupyterLab shares no module ${name}`);
    return (await version.get())();
  };

  /** @type {any} */ (window)._JUPYTERLAB ??= {};
  /** @type {any} */ (window)._JUPYTERLAB.nbtools = {
    init: async (/** @type {typeof scope} */ sharing) => {
      scope = sharing;
    },
    get: async () => {
      const { default: plugins } = await import("./plugins.js");
      // Without the mark JupyterLab takes the module for CommonJS, and shows an empty page.
      const module = { __esModule: true, default: await plugins(shared) };
      return () => module;
    },
  };
})();
