// Parts of a widget that are sent when they are first used.
import { columnChoice, h, insertCell, later, number, percent, put, runByKey, showError, stopButton } from "./shared.js";

/** @import { Link } from "./link.js" */

/** What the files of parts import: as they are sent, they are functions of it. */
const SCOPE = { columnChoice, h, insertCell, later, number, percent, put, runByKey, showError, stopButton };
/** @type {Map<string, Promise<any>>} */
const LOADED = new Map();

/**
 * Return what the file of a part exports.
 * @param {Link} link
 * @param {string} name
 */
export const loadPart = (link, name) => {
  const load = async () => {
    const text = await link.ask("part", { name });
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    try {
      return (await import(address)).default(SCOPE);
    } finally {
      URL.revokeObjectURL(address);
    }
  };
  const part = LOADED.get(name) ?? load();
  LOADED.set(name, part);
  part.catch(() => LOADED.delete(name));
  return part;
};
