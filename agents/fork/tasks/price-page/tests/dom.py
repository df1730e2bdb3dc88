"""Just enough of a browser's document to run page.js under Node, for machines without a browser.

Elements, classes, text, events and the selectors that the tests use; HTML given as text is parsed into elements, so
that a name written as HTML is found out.
"""

HARNESS = r"""
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.className = ""; this.id = ""; this.listeners = {}; this.checked = false; this.own = ""; }
  set textContent(text) { this.children = []; this.own = String(text); }
  get textContent() { return this.own + this.children.map((each) => each.textContent).join(""); }
  get classList() { const self = this; return { add(...n) { self.className = [...new Set([...self.className.split(" "), ...n])].join(" ").trim(); }, toggle(n, on) { const all = new Set(self.className.split(" ").filter(Boolean)); (on ?? !all.has(n)) ? all.add(n) : all.delete(n); self.className = [...all].join(" "); }, contains(n) { return self.className.split(" ").includes(n); } }; }
  append(...items) { for (const item of items) this.children.push(item instanceof Element ? item : text(item)); }
  appendChild(item) { this.append(item); return item; }
  replaceChildren(...items) { this.own = ""; this.children = []; this.append(...items); }
  set innerHTML(html) { this.own = ""; this.children = parse(html); }
  insertAdjacentHTML(_where, html) { this.children.push(...parse(html)); }
  setAttribute(name, value) { if (name === "class") this.className = value; else this[name] = value; }
  addEventListener(kind, run) { (this.listeners[kind] ??= []).push(run); }
  click() { this.checked = !this.checked; for (const kind of ["click", "input", "change"]) for (const run of this.listeners[kind] ?? []) run({ target: this, currentTarget: this }); }
  *all() { for (const child of this.children) { yield child; yield* child.all(); } }
  matches(part) { const [, tag, id, classes] = part.match(/^([\w-]*)(?:#([\w-]+))?((?:\.[\w-]+)*)$/); return (!tag || tag === this.tag) && (!id || id === this.id) && classes.split(".").filter(Boolean).every((name) => this.className.split(" ").includes(name)); }
  querySelectorAll(selector) { let found = [this]; for (const part of selector.trim().split(/\s+/)) found = [...new Set(found.flatMap((each) => [...each.all()].filter((inner) => inner.matches(part))))]; return found; }
  querySelector(selector) { return this.querySelectorAll(selector)[0] ?? null; }
}
function text(value) { const made = new Element("#text"); made.own = String(value); return made; }
function parse(html) {
  const root = new Element("root"), open = [root];
  for (const [token] of html.matchAll(/<\/[\w-]+>|<[a-zA-Z][^>]*>|<[^>]*$|<[^a-zA-Z\/][^>]*>?|[^<]+/g)) {
    if (token.startsWith("</")) { if (open.length > 1) open.pop(); continue; }
    const tag = token.match(/^<([a-zA-Z][\w-]*)/);
    if (!tag) { if (token.startsWith("<")) continue; open.at(-1).append(token.replaceAll("&lt;", "<").replaceAll("&amp;", "&")); continue; }
    const made = new Element(tag[1].toLowerCase());
    made.className = token.match(/class="([^"]*)"/)?.[1] ?? ""; made.id = token.match(/id="([^"]*)"/)?.[1] ?? "";
    open.at(-1).append(made);
    if (!["input", "br", "img"].includes(made.tag)) open.push(made);
  }
  return root.children;
}
const document = new Element("html"), window = document;
document.createElement = (tag) => new Element(tag); document.createTextNode = text;
document.getElementById = (id) => document.querySelector("#" + id);
for (const [tag, id] of [["input", "yearly"], ["div", "plans"]]) { const made = new Element(tag); made.id = id; document.append(made); }
"""
