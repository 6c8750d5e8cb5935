// What the linter asks of the JavaScript: the same as of the Python, as far as it can be counted.
import js from "@eslint/js";
import globals from "globals";

const LINE = 120;
// A name says what a thing is: these say what was done with it.
const MEANINGLESS = new Set(
  "found told made given known shown said kept place plain held taken meant asked".split(" "),
);

/** @type {import("eslint").Rule.RuleModule} */
const names = {
  create: ({ sourceCode, report }) => ({
    "Program:exit": () => {
      for (const scope of sourceCode.scopeManager.scopes) {
        for (const { name, defs } of scope.variables) {
          if (!defs.length || !MEANINGLESS.has(name)) continue;
          report({ node: defs[0].name, message: `'${name}' says nothing: name what it is` });
        }
      }
    },
  }),
};

const literals = {
  selector: "TemplateElement[value.raw=/\\n|\\u002f\\*/], Literal[value=/\\u002f\\*/]",
  message: "Blanks at line starts, and comments, are taken out of what is sent: write \\n, and no comment in a text.",
};
/** Names at the top of joined files share one scope. @type {import("eslint").Rule.RuleModule} */
const imports = {
  create: ({ report }) => ({
    ImportSpecifier: (/** @type {any} */ node) => {
      const isSame = node.imported.type === "Identifier" && node.imported.name === node.local.name;
      if (!isSame) report({ node, message: "import a name as it is" });
    },
    "ImportDefaultSpecifier, ImportNamespaceSpecifier": (/** @type {any} */ node) =>
      report({ node, message: "import names one by one" }),
  }),
};

export default [
  // Environments and packages lie in the same folder.
  { ignores: ["*", "!nbtools/", "!tests/", "!eslint.config.js"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    plugins: { house: { rules: { imports, names } } },
    rules: {
      "arrow-body-style": "error",
      // Beside branches it counts `&&`, `??` and `?.`, which the Python side's 10 does not.
      complexity: ["error", 15],
      curly: ["error", "multi-line"],
      eqeqeq: ["error", "always", { null: "ignore" }],
      "house/names": "error",
      "max-depth": ["error", 3],
      "max-len": ["error", { code: LINE, ignoreUrls: false }],
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", 60],
      "no-inner-declarations": "error",
      "no-shadow": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "one-var": ["error", "never"],
      "prefer-arrow-callback": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
  {
    files: ["nbtools/widgets/static/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: { "house/imports": "error", "no-restricted-syntax": ["error", literals] },
  },
  { files: ["nbtools/jupyter/labextension/**/*.js"], languageOptions: { globals: globals.browser } },
  {
    files: ["**/*.cjs"],
    languageOptions: { globals: globals.node, sourceType: "commonjs" },
  },
  { files: ["tests/**/*.js", "eslint.config.js"], languageOptions: { globals: globals.node } },
];
