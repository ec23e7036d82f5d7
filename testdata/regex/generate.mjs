// Records what JavaScript says about regular expressions: generate.mjs [SEED [TIMES]]. See README.md beside it.
//
// Each line has a pattern, its flags, and either an input with the answer of RegExp.prototype.test, or the error of a pattern
// that does not compile. Runs of one seed write the same bytes.

const lines = [];
const seen = new Set();

// A small seeded generator (mulberry32), so that the corpus does not change without a reason.
let state = Number(process.argv[2] ?? 20261130);
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const chance = (p) => random() < p;
const times = (n, f) => Array.from({ length: n }, f);

// record asks JavaScript. Inputs are well-formed and hold no U+FFFD: a lone surrogate has become that character in every value
// that is matched, so a pattern of one means something else here than there.
function record(about, pattern, ...inputs) {
  let regex;
  try {
    regex = new RegExp(pattern, "u");
  } catch (e) {
    add({ about, pattern, flags: "u", error: e.message.slice(e.message.lastIndexOf(": ") + 2) });
    return;
  }
  for (const input of inputs) {
    if (!input.isWellFormed() || input.includes("\ufffd")) throw new Error(`unfit input for ${pattern}`);
    add({ about, pattern, flags: "u", input, matches: regex.test(input) });
  }
}

function add(line) {
  const key = JSON.stringify([line.pattern, line.input]);
  if (seen.has(key)) return;
  seen.add(key);
  lines.push(JSON.stringify(line));
}

const spaces = ["\t", "\n", "\v", "\f", "\r", " ", "\u00a0", "\u1680", "\u2000", "\u2005", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"];
const nearSpaces = ["\u0000", "\b", "\u000e", "\u001f", "!", "\u0085", "\u180e", "\u1fff", "\u200b", "\u2027", "\u202a", "\u2060", "\u2fd5", "\ufefe", "\uff00"];
const characters = [
  ..."aAzZ09_-.*+?^$(){}[]|/\\:=!<>,@#&~\"'`%;", "\u007f", "é", "É", "ß", "ſ", "K", "σ", "ς", "Σ", "İ", "ı", "Ж", "ж", "日", "本", "٣", "Ⅷ", "²", "½", "\u0301", "\u0903", "\u20dd",
  "‿", "—", "«", "»", "€", "∑", "^", "©", "\u00ad", "\ue000", "\u{1f600}", "\u{1d49c}", "\u{10400}", "\u{10428}", "\u{10ffff}", "\ud7ff", "Dž", "ʰ", "א", "क", "𐌰",
];
const all = [...spaces, ...nearSpaces, ...characters];
const hex = (c, n) => c.codePointAt(0).toString(16).padStart(n, "0");
const quote = (c) => ("^$\\.*+?()[]{}|/".includes(c) ? "\\" + c : c);

// Rows of single characters: each construct against every character.
function classes() {
  const rows = [["dot", "^.$"], ["space", "^\\s$"], ["space", "^\\S$"], ["space", "^[\\s]$"], ["space", "^[^\\s]$"], ["space", "^[\\S]$"], ["space", "^[^\\S]$"], ["space", "^[\\s\\S]$"], ["space", "^[^\\s\\S]$"], ["space", "^[\\s_-]$"]];
  for (const [about, pattern] of rows) record(about, pattern, ...(about === "dot" || pattern === "^\\s$" ? all : [...spaces, ...nearSpaces].filter(() => chance(0.5))), "a", "\u{1f600}");
  for (const pattern of ["^\\d$", "^\\D$", "^\\w$", "^\\W$", "^[\\d]$", "^[\\D]$", "^[\\w]$", "^[\\W]$", "^[^\\w]$", "^[^\\W]$", "^[\\d\\W]$", "^[^\\d\\W]$"]) record("word", pattern, ...times(10, () => pick(all)), "٣", "é", "_", "7", "K", "ſ");
  for (const pattern of ["[]", "[^]", "^[^]$", "^[^][]?$", "[]|a", "a[]?", "[][^]", "(?:[])*", "[^]{2}", "[]]", "[^]]"]) record("empty class", pattern, "", "a", "\n", "]", "a]", "\u{1f600}", "\u2028");
}

function boundaries() {
  for (const pattern of ["\\b", "\\B", "\\ba", "a\\b", "\\Ba", "a\\B", "\\b\\b", "\\b\\B", "^\\b", "\\b$", "^\\B$", "\\bcat\\b", "a\\Bb", "\\b.\\b", "(?:\\b|x)+a", "\\bé", "é\\b", "ſ\\b", "\\b\u{1f600}", "\\b*", "\\B+", "\\b{2}", "\\b?"]) {
    record("word", pattern, "", "a", "a cat.", "cats", "écaté", "é", "a b", "-", "ſ", "a\u{1f600}", "xa");
  }
  for (const pattern of ["^", "$", "^$", "^a", "a$", "^a$", "$^", "a^b", "a$b", "^^a$$", "(^a|b$)", "(?:^|,)a", "a(?:$|,)", "^(?:a|b$)", "a\\n$", "^\\na", "(?:^)*a", "(?:$)?a", "^*", "$+", "^{1}", "$?"]) {
    record("anchors", pattern, "", "a", "\n", "a\n", "\na", "a\nb", "ab", "b,a", "a\u2028");
  }
}

function escapes() {
  for (const c of characters) {
    const inputs = chance(0.25) ? [c, "\\" + c] : [c];
    record("escapes", `^\\u{${hex(c, 1)}}$`, ...inputs);
    record("escapes", `^[\\u{${hex(c, 6)}}]$`, ...inputs);
    record("escapes", `^${[...c].flatMap((x) => x.split("")).map((u) => "\\u" + u.charCodeAt(0).toString(16).padStart(4, "0")).join("")}$`, ...inputs);
    if (c < "\u0100") record("escapes", `^\\x${hex(c, 2)}[\\x${hex(c, 2)}]$`, c + c, c, "x");
    record("escapes", `^${quote(c)}$`, ...inputs);
    record("escapes", `^\\${c}$`, ...inputs);
    record("escapes", `^[\\${c}]$`, ...inputs);
    if (!"]\\^-".includes(c)) record("escapes", `^[${c}]$`, ...inputs);
  }
  for (let c = 0x20; c < 0x7f; c++) {
    const s = String.fromCharCode(c);
    record("escapes", `\\${s}`, s);
    record("escapes", `[\\${s}]`, s);
    record("escapes", `\\c${s}`, String.fromCharCode(c % 32));
    record("escapes", `(?${s}a)`, "a");
  }
  const broken = ["\\", "\\x", "\\x4", "\\xg0", "\\x4g", "\\u", "\\u0", "\\u004", "\\u00g0", "\\u{", "\\u{}", "\\u{41", "\\u{g}", "\\u{110000}", "\\u{ 41}", "\\u{+41}", "\\u{4_1}", "\\u{0000000000000041}", "\\c", "\\c1", "\\c-", "\\cé", "[\\c]", "[\\c1]", "[\\cA]", "\\0", "\\00", "\\01", "\\09", "\\0a", "[\\0]", "[\\01]", "[\\1]", "[\\8]", "[\\b]", "[\\B]", "[\\k]", "[\\u]", "[\\x1]", "\\ud83d", "\\ud83d\\u0041", "\\ude00\\ud83d", "\\ud83d\\u{de00}", "\\u{d83d}\\u{de00}", "[\\ud83d]", "[^\\ud83d]", "[\\ud83d-\\udfff]", "[^\\ud800-\\udfff]", "\\ud83d\\ude0", "\\ud83d\\u", "\\ud83d\\ude00{2}", "[\\ud83d\\ude00-\\ud83d\\ude02]", "^[\\ud83d\\ude00\\ud83d\\ude01]{2}$"];
  for (const pattern of broken) record("surrogates", pattern, "", "A", "AA", "\u{1f600}", "\u{1f600}\u{1f600}", "\u{1f601}", "\0", "\0a", "\u0001", "\b", "-");
  for (const c of ["\u{1f600}", "\u{1d49c}", "\u{10ffff}", "\u{10000}"]) {
    for (const pattern of [c, `^${c}$`, `^.$`, `^..$`, `^[${c}]$`, `^[^${c}]$`, `${c}?`, `^${c}{2}$`, `^(?:${c}|a)*$`, `^[a-${c}]$`, `^[${c}-\\u{10ffff}]$`, `^\\S$`, `^\\W$`]) record("surrogates", pattern, c, c + c, "a" + c, "a", "", "\u{1f602}");
  }
}

function foreign() {
  for (const pattern of ["(?i)a", "(?i:a)", "(?-i:a)", "(?s:.)", "(?m)^a", "(?P<n>a)", "(?P=n)", "(?'n'a)", "(?>a)", "(?#c)a", "(?|a)", "(?1)", "(?R)", "(?&n)", "\\Aa", "a\\z", "a\\Z", "\\Qa.b\\E", "\\a", "\\e", "\\h", "\\H", "\\R", "\\X", "\\K", "\\G", "\\N", "\\C", "\\N{U+41}", "\\x{41}", "\\pL", "\\PL", "\\p", "\\p{", "\\p{L", "\\p{}", "[[:alpha:]]", "[:alpha:]", "[[.a.]]", "[a&&b]", "[a--b]", "[a||b]", "[[a]b]", "a*+", "a++", "a?+", "a{2}+", "a**", "a+*", "a???", "a*??", "*", "+a", "?", "a|*", "(*a)", "(+)", "(?:*)", "{", "}", "]", "{2}", "{,2}", "a{", "a}", "a]", "a{,5}", "a{2", "a{2,", "a{x}", "a{ 2}", "a{2, 3}", "a{-1}", "a{2,1}", "a{0,0}", "a{00,01}", "[", "[a", "[^", "[a\\]", "(", ")", "(a", "a)", "((a)", "(a))", "(?", "(?:", "(?:a", "(?<", "(?<n", "(?<n>", "(?<>a)", "(?<1>a)", "(?<n-m>a)", "(?<n n>a)"]) {
    record("syntax", pattern, "", "a", "A", "aa", "aaa", "a.b", "b", "]", "-", ":", "[a]b", "&");
  }
}

function groups() {
  for (const pattern of ["(a)", "(?:a)", "()", "(?:)", "(|a)", "(a|)", "(?:a|b|)c", "((a)|b)+", "(?<n>a)", "(?<n>a)(?<m>b)", "(?<n>a)|(?<m>b)", "(?<n>a)(?<n>b)", "(?<$>a)", "(?<_1>a)", "(?<é>a)", "(?<日本>a)", "(?<Ⅷ>a)", "(?<℘>a)", "(?<a·>a)", "(?<·a>a)", "(?<a\u200d>a)", "(?<\u200da>a)", "(?<ⸯ>a)", "(?<²>a)", "(?<a٣>a)", "(?<٣a>a)", "(?<a\u0301>a)", "(?<\u0301a>a)", "(?<a‿b>a)", "(?<‿>a)", "(?<\u{1d49c}>a)", "(?<\u{1f600}>a)", "(?<\\u0061>a)", "(?<\\u{61}>a)", "(?<\\ud835\\udc9c>a)", "(?<\\u0031>a)", "(?<\\x61>a)", "(?<\\u006>a)", "(?<a>a)(?<\\u0061>b)", "(?<a b>a)", "(?<constructor>a)"]) {
    record("groups", pattern, "", "a", "b", "ab", "ac", "c", "ba");
  }
  for (const pattern of ["(?=a)b", "(?=a)a", "a(?!b)", "(?!)", "(?<=a)b", "(?<!a)b", "(?=a)*", "(?!a)?b", "(?<=a)*", "(?<=a)+b", "(a)\\1", "\\1(a)", "\\1", "(a)\\2", "(?:a)\\1", "(?<n>a)\\k<n>", "\\k<n>", "\\k", "(?<n>a)\\k<m>", "(?<n>a)\\k", "(?<n>a)\\k<n", "(a)\\10", "(a)\\01", "(((((((((a)))))))))\\9"]) {
    record("beyond", pattern, "a", "b", "ab", "aa", "");
  }
}

function quantifiers() {
  const a = (n) => "a".repeat(n);
  for (const q of ["*", "+", "?", "*?", "+?", "??", "{0}", "{1}", "{2}", "{3}?", "{0,}", "{1,}", "{2,}?", "{0,1}", "{1,3}", "{2,2}", "{0,0}", "{02,003}"]) {
    for (const [atom, one] of [["a", "a"], [".", "b"], ["[ab]", "b"], ["(?:ab)", "ab"], ["(a|b)", "b"], ["\\s", "\u00a0"], ["\\u{1f600}", "\u{1f600}"], ["[^]", "\n"], ["(?:)", ""]]) {
      record("quantifiers", `^${atom}${q}$`, "", one, one.repeat(3));
    }
  }
  for (const [pattern, counts] of [["^a{7}$", [6, 7, 8]], ["^a{99,101}$", [98, 99, 100, 101, 102]], ["^a{500}$", [499, 500, 501]], ["^a{999}$", [998, 999, 1000]], ["^a{1000}$", [999, 1000, 1001]], ["^a{1000,}$", [999, 1000, 1200]], ["^a{0,1000}$", [0, 1000, 1001]], ["^a{999,1000}?$", [998, 1000]], ["a{1000}", [999]], ["^a{1001}$", [1000, 1001, 1002]], ["^a{1000,1001}$", [999, 1001, 1002]], ["^a{1200,}$", [1199, 1300]], ["^(?:aa){500}$", [999, 1000]], ["^(?:a{10}){100}$", [999, 1000, 1001]], ["^(?:a{100}){11}$", [1100]], ["a{5000}", [10]], ["a{5001}", [10]], ["a{4294967296}", [10]], ["a{99999999999999999999,1}", [10]], ["a{99999999999999999999}", [10]], ["(?:a{1000}){1000}", [10]]]) {
    record("quantifiers", pattern, ...counts.map(a));
  }
}

function properties() {
  const categories = ["L", "Lu", "Ll", "Lt", "LC", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Co", "Cn", "Cs", "Letter", "Uppercase_Letter", "Lowercase_Letter", "Titlecase_Letter", "Cased_Letter", "Modifier_Letter", "Other_Letter", "Mark", "Combining_Mark", "Nonspacing_Mark", "Spacing_Mark", "Enclosing_Mark", "Number", "Decimal_Number", "digit", "Letter_Number", "Other_Number", "Punctuation", "punct", "Connector_Punctuation", "Dash_Punctuation", "Open_Punctuation", "Close_Punctuation", "Initial_Punctuation", "Final_Punctuation", "Other_Punctuation", "Symbol", "Math_Symbol", "Currency_Symbol", "Modifier_Symbol", "Other_Symbol", "Separator", "Space_Separator", "Line_Separator", "Paragraph_Separator", "Other", "Control", "cntrl", "Format", "Private_Use", "Surrogate", "Unassigned"];
  const samples = () => times(2, () => pick(all));
  for (const c of categories) {
    record("properties", `^\\p{${c}}$`, ...samples());
    record("properties", `^\\P{${c}}$`, ...samples());
    record("properties", `^[^\\P{${c}}-]$`, pick(all));
    record("properties", `^\\p{gc=${c}}$`, pick(all));
    record("properties", `^\\p{General_Category=${c}}$`, pick(all));
    record("properties", `\\p{${c.toLowerCase()}}`, pick(all));
  }
  for (const s of ["Greek", "Latin", "Cyrillic", "Han", "Hebrew", "Devanagari", "Gothic", "Deseret", "Common", "Inherited", "Arabic", "Hiragana"]) {
    record("properties", `^\\p{Script=${s}}$`, ...times(3, () => pick(all)), "σ", "ж", "א", "क");
    record("properties", `^[^\\p{sc=${s}}]$`, ...times(3, () => pick(all)), "σ", "ж", "א", "क");
    record("properties", `\\p{${s}}`, "a");
    record("properties", `\\p{Script=${s.toLowerCase()}}`, "a");
  }
  for (const p of ["Any", "ASCII", "Assigned", "Alphabetic", "White_Space", "Uppercase", "Emoji", "ID_Start", "Script_Extensions=Greek", "scx=Grek", "Script=Grek", "Script", "Script=", "=Greek", "gc", "gc=", "gc=Greek", "Script=Lu", "Xx", "Foo=Bar", "^L", " L", "L ", "L=", "Ll=L", "IsL", "InGreek", "lu", "any", "Script=^Greek", "Block=ASCII", "Zyyy", "L}{", "General_Category=Script"]) {
    record("properties", `^\\p{${p}}$`, ...samples());
    record("properties", `^\\P{${p}}$`, ...samples());
    record("properties", `^[\\p{${p}}\\d]$`, ...samples());
  }
}

function ranges() {
  for (const pattern of ["^[a-z]$", "^[z-a]$", "^[a-a]$", "^[a-]$", "^[-a]$", "^[--a]$", "^[---]$", "^[a-\\d]$", "^[\\d-a]$", "^[\\w-\\d]$", "^[\\s-]$", "^[-\\s]$", "^[\\s-a]$", "^[a-\\p{L}]$", "^[\\p{L}-a]$", "^[\\p{L}-]$", "^[+--]$", "^[!--]$", "^[.-/]$", "^[\\--/]$", "^[\\x2d-\\x2f]$", "^[a-c-e]$", "^[a-c-]$", "^[a-c-e-g]$", "^[^a-c]$", "^[^^]$", "^[^-a]$", "^[\\]-a]$", "^[\\]\\-\\\\]$", "^[[-\\]]$", "^[(*+?.|$^{})]$", "^[\\b]$", "^[\\t-\\r]$", "^[\\0-\\x1f]$", "^[\\cA-\\cZ]$", "^[\\u0041-\\u{5a}]$", "^[é-ż]$", "^[日-本]$", "^[\u{10400}-\u{10428}]$", "^[\ud7ff-\ue000]$", "^[a-\u{10ffff}]$", "^[\\/-9]$", "^[/-9]$", "^[ -~]$", "^[^ -~]$", "^[A-z]$", "^[&&a]$", "^[a&&a]$"]) {
    record("ranges", pattern, ...times(3, () => pick(all)), "a", "b", "-", "]", "\\", "5", ".", "^", "d");
  }
}

function cases() {
  for (const [x, y] of [["a", "A"], ["é", "É"], ["ß", "ẞ"], ["s", "ſ"], ["k", "K"], ["σ", "ς"], ["i", "İ"], ["ı", "I"], ["Dž", "dž"], ["\u{10428}", "\u{10400}"], ["å", "Å"], ["ω", "Ω"]]) {
    for (const pattern of [`^${x}$`, `^[${x}]$`, `^[^${x}]$`, `${x}|${y}`, `^[${x}${y}]{2}$`, `(?:${x})+`]) record("case", pattern, x, y, x + y, x.toUpperCase(), x.toLowerCase());
  }
}

// Random patterns, each with a text that it was made to match, a near miss and something else.
const atoms = [
  () => { const c = pick(["a", "b", "c", "é", "日", "\u{1f600}", "-", "_", " ", "0", "/", "&", ":"]); return [quote(c), () => c]; },
  () => { const c = pick(["a", "b", "\n", "é", "\u{1f600}", "."]); return [pick([`\\u{${hex(c, 1)}}`, c < "\u{10000}" ? `\\u${hex(c, 4)}` : `\\u{0${hex(c, 1)}}`]), () => c]; },
  () => [".", () => pick(["a", "é", "\u{1f600}", "\t"])],
  () => ["\\s", () => pick(spaces)],
  () => ["\\S", () => pick(["a", "\u200b", "\u0085"])],
  () => ["\\d", () => pick(["0", "9"])],
  () => ["\\w", () => pick(["a", "Z", "_", "5"])],
  () => ["\\W", () => pick(["é", "-", "\u{1f600}"])],
  () => ["\\p{Lu}", () => pick(["A", "É", "Σ"])],
  () => ["\\P{L}", () => pick(["1", "-", "\u{1f600}"])],
  () => ["[a-c_]", () => pick(["a", "b", "c", "_"])],
  () => ["[^a-c]", () => pick(["d", "\n", "\u{1f600}"])],
  () => ["[\\s\\d-]", () => pick(["-", "3", "\ufeff"])],
  () => ["[^]", () => pick(["\n", "a", "\u2029"])],
  () => ["\\.", () => "."],
  () => ["\\/", () => "/"],
  () => ["\\b", () => ""],
  () => ["\\B", () => ""],
];
const counts = [["*", 0, 3], ["+", 1, 3], ["?", 0, 1], ["{2}", 2, 2], ["{1,3}", 1, 3], ["{2,}", 2, 4], ["*?", 0, 3], ["+?", 1, 2], ["??", 0, 1], ["{0,2}?", 0, 2]];

function term(depth) {
  let [text, sample] = depth > 0 && chance(0.3) ? group(depth - 1) : pick(atoms)();
  if (!chance(0.35) || text === "\\b" || text === "\\B") return [text, sample];
  const [mark, low, high] = pick(counts);
  return [text + mark, () => times(low + below(high - low + 1), sample).join("")];
}

function sequence(depth) {
  const terms = times(1 + below(3), () => term(depth));
  return [terms.map((t) => t[0]).join(""), () => terms.map((t) => t[1]()).join("")];
}

function disjunction(depth) {
  const branches = times(chance(0.3) ? 2 + below(2) : 1, () => sequence(depth));
  return [branches.map((b) => b[0]).join("|"), () => pick(branches)[1]()];
}

function group(depth) {
  const [text, sample] = disjunction(depth);
  return [pick(["(", "(?:", "(?:"]) + text + ")", sample];
}

function grown(count) {
  for (let i = 0; i < count; i++) {
    const [text, sample] = disjunction(2);
    const pattern = chance(0.6) ? `^(?:${text})$` : text;
    const made = sample();
    const near = [...made];
    if (near.length > 0) near[below(near.length)] = pick(all);
    record("grown", pattern, made, near.join(""), times(below(5), () => pick(all)).join(""));
  }
}

// Random patterns with one slip of the pen: most of them are no patterns any more.
function slipped(count) {
  const marks = [..."()[]{}|*+?^$.\\-,:=!<>0a", "(?", "(?:", "(?<", "\\u", "\\x", "\\p{", "\\d", "{2", ",}", "[^", "\\k", "\\1", "\\c", "\ud83d", "\u{1f600}"];
  for (let i = 0; i < count; i++) {
    const text = [...disjunction(2)[0]];
    const at = below(text.length + 1);
    text.splice(at, below(2), pick(marks));
    const pattern = text.join("");
    if (pattern.isWellFormed()) record("slipped", pattern, "", pick(["a", "b", "-"]), times(3, () => pick(all)).join(""));
  }
}

classes();
boundaries();
escapes();
foreign();
groups();
quantifiers();
properties();
ranges();
cases();
const runs = Number(process.argv[3] ?? 1);
grown(150 * runs);
slipped(250 * runs);
process.stdout.write(lines.join("\n") + "\n");
