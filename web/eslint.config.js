import a11y from "eslint-plugin-jsx-a11y";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

// Two fifths of the time: deprecated names, and what React's compiler finds. `make check` has them, `make test` not.
const compiled = Object.keys(hooks.configs.flat.recommended.rules).filter(
    (rule) => !["react-hooks/rules-of-hooks", "react-hooks/exhaustive-deps"].includes(rule),
);
const slow = process.env.QUICK ? ["@typescript-eslint/no-deprecated", ...compiled] : [];

export default ts.config(
    { ignores: ["src/api/operator.ts", "src/api/shared.ts"] },
    ...ts.configs.strictTypeChecked,
    a11y.flatConfigs.strict,
    hooks.configs.flat.recommended,
    {
        languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
        rules: {
            "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
            "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
            "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: false }],
            // All texts stand in texts.ts.
            "no-restricted-syntax": [
                "error",
                { selector: "JSXText[value=/[A-Za-z]{2}/]", message: "Put the text into texts.ts." },
                {
                    selector:
                        "JSXAttribute[name.name=/^(title|aria-label|aria-description|placeholder|alt|label)$/] > Literal[value=/[A-Za-z]{2}/]",
                    message: "Put the text into texts.ts.",
                },
            ],
            "react-hooks/incompatible-library": "off", // TanStack Virtual is meant
            // A tree grid and its rows are interactive by their roles.
            "jsx-a11y/no-noninteractive-tabindex": [
                "error",
                { tags: [], roles: ["tabpanel", "treegrid", "grid", "log", "region"] },
            ],
        },
    },
    { rules: Object.fromEntries(slow.map((rule) => [rule, "off"])) },
);
