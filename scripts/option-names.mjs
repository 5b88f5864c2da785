/**
 * Writes the names of all options into the types of the package. In the sources they come from the manifests of the features, whose
 * types are no part of the package. `npm run build:types` calls it.
 */
import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import typescript from 'typescript-api';

const path = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist', 'types', 'app', 'option-names.d.ts');
const program = typescript.createProgram([path], {
  module: typescript.ModuleKind.NodeNext,
  strict: true,
  skipLibCheck: true,
});
const checker = program.getTypeChecker();
const source = program.getSourceFile(path);
const all = typescript.TypeFormatFlags.NoTruncation | typescript.TypeFormatFlags.InTypeAlias;

/** The type `name` of the file, with its members written out. */
function namesOf(name) {
  const declaration = source.statements.find(
    (statement) => typescript.isTypeAliasDeclaration(statement) && statement.name.text === name,
  );
  const text = checker.typeToString(checker.getTypeAtLocation(declaration), undefined, all);
  if (!/^["`][A-Z]/.test(text)) throw new Error(`${path}: ${name} has no names, but is ${text}`);
  return `export type ${name} = ${text};\n`;
}

await writeFile(
  path,
  `import type { OptionsOfProgram } from '../server/config/config.js';
${namesOf('OptionName')}${namesOf('PrefixedName')}export type LateralOptions = OptionsOfProgram<OptionName, PrefixedName>;
`,
);
